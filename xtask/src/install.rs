//! What rows need from the machine: how it is found, and the Debian packages that bring it.

use std::fs;
use std::path::{Path, PathBuf};

use xshell::{Shell, cmd};

use crate::checkers;
use crate::matrix::Planned;

/// Something that a row needs and a machine may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// `libvulkan.so.1`.
    VulkanLoader,
    /// Mesa's Vulkan driver on the CPU.
    Lavapipe,
    /// The Khronos validation layer.
    ValidationLayers,
    /// NVIDIA's Vulkan driver. Comes with the hardware.
    NvidiaDriver,
    /// The Rust version that the manifests state, and no later one.
    StatedRust,
    /// The runtime of a sanitizer, by its short name. Comes with Rust, where there is one.
    Sanitizer(&'static str),
}

impl Need {
    /// The Debian package that brings it.
    fn package(self) -> Option<&'static str> {
        match self {
            Need::VulkanLoader => Some("libvulkan1"),
            Need::Lavapipe => Some("mesa-vulkan-drivers"),
            Need::ValidationLayers => Some("vulkan-validationlayers"),
            Need::NvidiaDriver | Need::StatedRust | Need::Sanitizer(_) => None,
        }
    }

    /// Whether `--install` can bring it.
    pub(crate) fn installable(self) -> bool {
        self.package().is_some()
    }

    /// Why a row that needs it cannot run here; `None` if it can.
    pub(crate) fn missing(self) -> Option<String> {
        match self {
            Need::VulkanLoader => vulkan_loader().is_none().then(|| "no libvulkan.so.1".to_owned()),
            Need::Lavapipe => lavapipe().is_none().then(|| "no lavapipe".to_owned()),
            Need::ValidationLayers => {
                validation_layer().is_none().then(|| "no Vulkan validation layers".to_owned())
            }
            Need::NvidiaDriver => nvidia().is_none().then(|| "no NVIDIA Vulkan driver".to_owned()),
            Need::StatedRust => other_rust(),
            Need::Sanitizer(name) => no_sanitizer(name),
        }
    }
}

/// Where the Vulkan loader looks for drivers and layers.
const VULKAN_DIRS: [&str; 3] = ["/usr/local/share/vulkan", "/usr/share/vulkan", "/etc/vulkan"];

/// The manifest of lavapipe, for `VK_DRIVER_FILES`.
pub(crate) fn lavapipe() -> Option<PathBuf> {
    manifest("icd.d", |name| name.starts_with("lvp_icd"))
}

/// The manifest of the Khronos validation layer.
pub(crate) fn validation_layer() -> Option<PathBuf> {
    manifest("explicit_layer.d", |name| {
        name.eq_ignore_ascii_case("VkLayer_khronos_validation.json")
    })
}

fn nvidia() -> Option<PathBuf> {
    manifest("icd.d", |name| name.starts_with("nvidia_icd"))
}

fn manifest(kind: &str, is_it: impl Fn(&str) -> bool) -> Option<PathBuf> {
    VULKAN_DIRS.iter().find_map(|dir| manifest_in(&Path::new(dir).join(kind), &is_it))
}

/// The first manifest, by name, that the test accepts.
fn manifest_in(dir: &Path, is_it: &impl Fn(&str) -> bool) -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(dir)
        .ok()?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_it))
        .collect();
    found.sort();
    found.into_iter().next()
}

/// Where the dynamic linker's cache has the loader.
fn vulkan_loader() -> Option<String> {
    let shell = Shell::new().ok()?;
    // For users, the directory of ldconfig is often not on the path.
    ["ldconfig", "/sbin/ldconfig"].iter().find_map(|ldconfig| {
        let cache = cmd!(shell, "{ldconfig} -p").quiet().ignore_stderr().read().ok()?;
        loader_in(&cache)
    })
}

fn loader_in(cache: &str) -> Option<String> {
    let line = cache.lines().find(|line| line.trim_start().starts_with("libvulkan.so.1 "))?;
    line.split("=> ").nth(1).map(|path| path.trim().to_owned())
}

/// The reason if the cargo that runs is not of the version stated in the manifest.
fn other_rust() -> Option<String> {
    let stated = fs::read_to_string(crate::root().join("Cargo.toml")).ok();
    let stated = stated.as_deref().and_then(stated_version);
    let running = crate::cargo().arg("--version").output().ok();
    let running = running.and_then(|output| String::from_utf8(output.stdout).ok());
    let running = running.as_deref().and_then(minor_version);
    match (stated, running) {
        (Some(stated), Some(running)) if stated == running => None,
        (Some(stated), Some(running)) => Some(format!(
            "this is cargo {}.{}, and {}.{} is stated in Cargo.toml: run the matrix with that",
            running.0, running.1, stated.0, stated.1
        )),
        (None, _) => Some("no rust-version in Cargo.toml".to_owned()),
        (_, None) => Some("cargo does not tell its version".to_owned()),
    }
}

/// The reason if this Rust has no runtime of a sanitizer.
fn no_sanitizer(name: &str) -> Option<String> {
    let dir = checkers::rustc(&["--print", "target-libdir"]);
    let has = |dir: &str| {
        let end = format!("_rt.{name}.a");
        fs::read_dir(dir.trim()).is_ok_and(|entries| {
            entries.flatten().any(|entry| entry.file_name().to_string_lossy().ends_with(&end))
        })
    };
    let found = dir.as_deref().is_some_and(has);
    (!found).then(|| format!("this Rust has no {name} runtime for this machine"))
}

/// `rust-version` of a manifest.
fn stated_version(manifest: &str) -> Option<(u32, u32)> {
    let line = manifest.lines().find(|line| line.starts_with("rust-version"))?;
    minor_version(line)
}

/// The first `major.minor` in a line of text.
fn minor_version(text: &str) -> Option<(u32, u32)> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let mut parts = text.get(start..)?.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Why a row cannot run here, with what would help; `None` if nothing is missing.
pub(crate) fn why_not(needs: &[Need]) -> Option<String> {
    let missing: Vec<_> =
        needs.iter().filter_map(|need| need.missing().map(|reason| (*need, reason))).collect();
    if missing.is_empty() {
        return None;
    }
    let reasons: Vec<_> = missing.iter().map(|(_, reason)| reason.as_str()).collect();
    let packages: Vec<_> = missing.iter().filter_map(|(need, _)| need.package()).collect();
    let mut text = reasons.join(", ");
    if !packages.is_empty() {
        text.push_str(&format!(" (Debian: {})", packages.join(" ")));
    }
    Some(text)
}

/// Installs what the planned rows need and the machine lacks, and says so. What cannot be
/// installed is no error here: the rows that need it are skipped with the reason.
pub(crate) fn install(plan: &[Planned]) -> Result<(), String> {
    let mut packages = Vec::new();
    for planned in plan.iter().filter(|planned| !planned.row.hardware || planned.asked) {
        for need in planned.row.needs {
            if let Some(package) = need.package()
                && !packages.contains(&package)
                && need.missing().is_some()
            {
                packages.push(package);
            }
        }
    }
    if packages.is_empty() {
        println!("install: nothing is missing");
        return Ok(());
    }
    self::packages(&packages)
}

/// Installs Debian packages.
pub(crate) fn packages(packages: &[&str]) -> Result<(), String> {
    let list = packages.join(" ");
    let os = fs::read_to_string("/etc/os-release").unwrap_or_default();
    if !is_debian(&os) {
        return Err(format!("not Debian or Ubuntu: install what brings these there: {list}"));
    }
    let shell = Shell::new().map_err(|e| e.to_string())?;
    let user = cmd!(shell, "id -u").quiet().read().map_err(|e| e.to_string())?;
    if user.trim() != "0" {
        return Err(format!("not root: run `apt-get install {list}` as root"));
    }
    println!("install: apt-get update, then apt-get install {list}");
    shell.set_var("DEBIAN_FRONTEND", "noninteractive");
    // Mirrors fail now and then, and a row lost to that tells nothing.
    let retries = ["-o", "Acquire::Retries=3"];
    cmd!(shell, "apt-get -qq {retries...} update").quiet().run().map_err(|e| e.to_string())?;
    cmd!(shell, "apt-get -qq -y {retries...} install --no-install-recommends {packages...}")
        .quiet()
        .ignore_stdout()
        .run()
        .map_err(|e| e.to_string())
}

/// Whether `/etc/os-release` is of a system that takes Debian's packages.
fn is_debian(os_release: &str) -> bool {
    os_release
        .lines()
        .filter_map(|line| line.strip_prefix("ID=").or_else(|| line.strip_prefix("ID_LIKE=")))
        .flat_map(|value| value.trim_matches('"').split_whitespace())
        .any(|id| id == "debian" || id == "ubuntu")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_and_its_kin() {
        assert!(is_debian("PRETTY_NAME=\"Debian GNU/Linux 12\"\nID=debian\n"));
        assert!(is_debian("ID=ubuntu\nID_LIKE=debian\n"));
        assert!(is_debian("ID=mint\nID_LIKE=\"ubuntu debian\"\n"));
        assert!(!is_debian("ID=fedora\nVERSION_ID=debian\n"));
        assert!(!is_debian(""));
    }

    #[test]
    fn loader_from_the_cache() {
        let cache = "2 libs found\n\
            \tlibvulkan_lvp.so (libc6,x86-64) => /lib/libvulkan_lvp.so\n\
            \tlibvulkan.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libvulkan.so.1\n";
        assert_eq!(loader_in(cache).as_deref(), Some("/lib/x86_64-linux-gnu/libvulkan.so.1"));
        assert_eq!(loader_in("\tlibvulkan_lvp.so (libc6) => /lib/libvulkan_lvp.so\n"), None);
    }

    #[test]
    fn versions() {
        assert_eq!(minor_version("cargo 1.95.0 (f2d3ce0bd 2026-03-21)"), Some((1, 95)));
        assert_eq!(
            stated_version("[a]\nedition = \"2024\"\nrust-version = \"1.95\"\n"),
            Some((1, 95))
        );
        assert_eq!(stated_version("edition = \"2024\"\n"), None);
        assert_eq!(minor_version("cargo"), None);
    }

    #[test]
    fn manifests_by_name() {
        let dir = std::env::temp_dir().join(format!("hedgerow-xtask-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        for name in ["lvp_icd.x86_64.json", "lvp_icd.txt", "intel_icd.json"] {
            fs::write(dir.join(name), "{}").expect("a file");
        }
        let found = manifest_in(&dir, &|name: &str| name.starts_with("lvp_icd"));
        assert_eq!(found, Some(dir.join("lvp_icd.x86_64.json")));
        assert_eq!(manifest_in(&dir, &|name: &str| name.starts_with("nvidia")), None);
        assert_eq!(manifest_in(&dir.join("none"), &|_: &str| true), None);
        fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn sanitizers_that_nobody_has() {
        assert!(Need::Sanitizer("none").missing().is_some_and(|reason| reason.contains("none")));
        assert!(!Need::Sanitizer("asan").installable());
    }

    #[test]
    fn nothing_needed_is_nothing_missing() {
        assert_eq!(why_not(&[]), None);
    }
}
