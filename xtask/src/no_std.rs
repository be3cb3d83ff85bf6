//! The check that the core and the host driver pull neither `std` nor `alloc`: by their
//! dependencies, and by a build that could not succeed with either.

use std::path::Path;
use std::{fs, io};

use crate::run::RowRun;

/// Packages to look at, each with the features that may not change the answer.
const PACKAGES: [(&str, &[&str]); 2] =
    [("hedgerow", &["", "defmt", "log", "rank-8", "defmt,log,rank-8"]), ("hedgerow-host", &[""])];

/// Crates that are known to do without `std` and `alloc` as they are used here.
const ALLOWED: [&str; 11] = [
    "bitflags",
    "bytemuck",
    "byteorder",
    "defmt",
    "hash32",
    "heapless",
    "hedgerow",
    "hedgerow-host",
    "log",
    "spin",
    "stable_deref_trait",
];

/// Features by which crates ask for `std` or `alloc`.
const FORBIDDEN: [&str; 6] =
    ["std", "alloc", "use_std", "extern_crate_std", "extern_crate_alloc", "kv_std"];

/// What the build is tried with: features of the core, and the host driver or not.
const BUILDS: [(&str, bool); 3] =
    [("", false), ("\"defmt\", \"log\", \"rank-8\"", false), ("", true)];

/// The source of the package that is built.
const PROBE: &str = include_str!("../templates/no_std.rs");

/// A target that has neither `std` nor an allocator to link, used where it is installed.
const BARE: &str = "thumbv7em-none-eabihf";

/// The `no-std` row.
pub(crate) fn check(run: &mut RowRun) {
    for (package, sets) in PACKAGES {
        for features in sets {
            dependencies(run, package, features);
        }
    }
    for (features, with_host) in BUILDS {
        build(run, features, with_host);
    }
}

fn dependencies(run: &mut RowRun, package: &str, features: &str) {
    let features = format!("--features={features}");
    let tree = run.cargo(&[
        "tree",
        "--quiet",
        "--package",
        package,
        "--no-default-features",
        &features,
        "--edges=normal,no-proc-macro",
        "--prefix=none",
        "--no-dedupe",
        "--format={p}|{f}",
    ]);
    let Some(tree) = tree else { return };
    if tree.code != Some(0) {
        return run.error(format!("cargo tree of {package} with {features} failed"));
    }
    let wrong = wrong_in_tree(&tree.text);
    run.checked(wrong.into_iter().map(|wrong| format!("{package} {features}: {wrong}")).collect());
}

/// What is wrong with a tree printed as `name version ...|feature,feature`.
fn wrong_in_tree(tree: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for line in tree.lines().filter(|line| !line.trim().is_empty()) {
        let (package, features) = line.split_once('|').unwrap_or((line, ""));
        let name = package.split_whitespace().next().unwrap_or_default();
        if !ALLOWED.contains(&name) {
            wrong.push(format!("`{name}` is not known to do without std and alloc"));
        }
        for feature in features.split(',').filter(|feature| FORBIDDEN.contains(feature)) {
            wrong.push(format!("`{name}` has its feature `{feature}` on"));
        }
    }
    wrong.sort();
    wrong.dedup();
    wrong
}

/// Builds the probe: with `std` below it there are two panic handlers, with `alloc` no allocator,
/// and both are errors.
fn build(run: &mut RowRun, features: &str, with_host: bool) {
    let root = crate::root();
    let dir = run.dir.clone();
    if let Err(e) = write_probe(&root, &dir, features, with_host) {
        return run.error(format!("the probe cannot be written: {e}"));
    }
    let mut targets = vec![None];
    if has_target(run, BARE) {
        targets.push(Some(BARE));
    }
    for target in targets {
        let mut command = crate::cargo();
        command
            .current_dir(&dir)
            .args(["build", "--quiet", "--release", "--target-dir", "target"])
            .args(target.iter().flat_map(|target| ["--target", target]));
        let built = run.command(command);
        let what = format!(
            "core with features [{features}]{}, {}",
            if with_host { " and host driver" } else { "" },
            target.unwrap_or("this machine")
        );
        if built.is_none_or(|ended| ended.code != Some(0)) {
            run.checked(vec![format!("does not build without std and alloc ({what})")]);
            continue;
        }
        let archive = dir
            .join("target")
            .join(target.unwrap_or_default())
            .join("release/libhedgerow_no_std_probe.a");
        match fs::read(&archive) {
            Ok(bytes) => {
                let found = foreign_symbols(&bytes);
                run.checked(
                    found.into_iter().map(|s| format!("`{s}` is linked ({what})")).collect(),
                );
            }
            Err(e) => run.error(format!("{}: {e}", archive.display())),
        }
    }
}

fn write_probe(root: &Path, dir: &Path, features: &str, with_host: bool) -> io::Result<()> {
    fs::create_dir_all(dir.join("src"))?;
    let core = root.join("core");
    let mut dependencies =
        format!("hedgerow = {{ path = '{}', features = [{features}] }}\n", core.display());
    let mut source = PROBE.to_owned();
    if with_host {
        let host = root.join("drivers/host");
        dependencies.push_str(&format!(
            "hedgerow-host = {{ path = '{}', default-features = false }}\n",
            host.display()
        ));
        source.push_str("\npub use hedgerow_host;\n");
    }
    fs::write(
        dir.join("Cargo.toml"),
        format!(
            "[package]\n\
             name = \"hedgerow-no-std-probe\"\n\
             edition = \"2024\"\n\
             [lib]\n\
             crate-type = [\"staticlib\"]\n\
             [dependencies]\n\
             {dependencies}\
             [profile.release]\n\
             panic = \"abort\"\n\
             [workspace]\n"
        ),
    )?;
    // The same versions as everywhere, and no index to ask.
    fs::copy(root.join("Cargo.lock"), dir.join("Cargo.lock"))?;
    fs::write(dir.join("src/lib.rs"), source)
}

fn has_target(run: &mut RowRun, target: &str) -> bool {
    let mut rustc =
        std::process::Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--print", "target-libdir", "--target", target]);
    let ended = run.command(rustc);
    ended.is_some_and(|ended| ended.code == Some(0) && Path::new(ended.text.trim()).is_dir())
}

/// Symbols of `std`, `alloc` or an allocator in an archive, by both ways of mangling.
fn foreign_symbols(archive: &[u8]) -> Vec<&'static str> {
    // In the newer way a crate is `C`, `s`, a hash in base 62, `_`, and its name with its length.
    const MARKS: [&str; 5] = ["__rust_alloc", "__rg_alloc", "_ZN3std", "_ZN5alloc", "rust_oom"];
    let mut found: Vec<&'static str> =
        MARKS.into_iter().filter(|mark| contains(archive, mark.as_bytes())).collect();
    for (mark, name) in [("_3std", "std"), ("_5alloc", "alloc")] {
        let is_crate = |at: usize| {
            let hash = archive.get(..at).unwrap_or_default().iter().rev();
            let hash = hash.take_while(|byte| byte.is_ascii_alphanumeric());
            // The hash and what is before it run together: `NvNtCsjhR..._`.
            let before: Vec<u8> = hash.copied().collect();
            before.windows(2).any(|pair| pair == b"sC") && before.len() > 8
        };
        if positions(archive, mark.as_bytes()).any(is_crate) {
            found.push(name);
        }
    }
    found
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    positions(bytes, part).next().is_some()
}

fn positions<'a>(bytes: &'a [u8], part: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    bytes.windows(part.len()).enumerate().filter(move |(_, w)| *w == part).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees() {
        let good = "hedgerow v0.1.0 (/a/core)|log\nspin v0.12.3|mutex,spin_mutex\nlog v0.4.35|\n";
        assert_eq!(wrong_in_tree(good), Vec::<String>::new());
        let wrong = wrong_in_tree("spin v0.12.3|mutex,std\nserde v1.0.0|alloc\n");
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        // Features that only begin like the forbidden ones are others.
        assert!(wrong_in_tree("log v0.4.35|std_like,allocate\n").is_empty());
    }

    #[test]
    fn symbols() {
        assert!(foreign_symbols(b"..._ZN4core5alloc6layout...").is_empty());
        assert!(foreign_symbols(b"_RNvNtCsjhR4kQ7fV3z_4core5alloc").is_empty());
        assert_eq!(foreign_symbols(b"_ZN3std9panicking"), ["_ZN3std"]);
        assert_eq!(
            foreign_symbols(b"_RNvCsjhR4kQ7fV3z_7___rustc12___rust_alloc"),
            ["__rust_alloc"]
        );
        assert_eq!(foreign_symbols(b"_RNvNtCsjhR4kQ7fV3z_3std9panicking"), ["std"]);
        assert_eq!(foreign_symbols(b"_RNvNtCsjhR4kQ7fV3z_5alloc3vec"), ["alloc"]);
    }

    #[test]
    fn the_probe_is_without_std() {
        assert!(PROBE.contains("#![no_std]") && PROBE.contains("#[panic_handler]"));
    }
}
