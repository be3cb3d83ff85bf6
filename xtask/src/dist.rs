//! Collects the programs as plain binaries that run without cargo and without the source tree,
//! and checks that they do.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::run::RowRun;
use crate::{Profile, binary};

/// Programs of the host-tests package, with what the README says of each.
const PROGRAMS: [(&str, &str); 2] = [
    (
        "demo",
        "the main job, on every driver this machine has\n\
         \x20   ./demo\n\
         \x20   ./demo --driver host --driver vulkan --json --out pictures",
    ),
    (
        "conformance",
        "the conformance suite, one row of the matrix at a time\n\
         \x20   ./conformance --matrix host\n\
         \x20   ./conformance --matrix vulkan     (lavapipe, or the device chosen below)\n\
         \x20   ./conformance --matrix nvidia\n\
         \x20   Rows: host, host-tiny, vulkan, vulkan-strict, nvidia. The arguments of Rust's test\n\
         \x20   programs follow: a filter, --list, --nocapture. Exit status 77, with a line\n\
         \x20   `SKIP: reason`, if the row's device is not here.",
    ),
];

/// Builds the programs and copies them to `dir`.
pub(crate) fn collect(dir: &Path) -> Result<(), String> {
    crate::build(&names(), Profile::Release)?;
    let files = copy(dir)?;
    println!("{}: {}", dir.display(), files.join(", "));
    Ok(())
}

fn names() -> Vec<&'static str> {
    PROGRAMS.iter().map(|(name, _)| *name).collect()
}

fn copy(dir: &Path) -> Result<Vec<String>, String> {
    let fail = |what: &Path, e: std::io::Error| format!("{}: {e}", what.display());
    fs::create_dir_all(dir).map_err(|e| fail(dir, e))?;
    let mut files = Vec::new();
    for name in names() {
        let from = binary(name, Profile::Release);
        let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
        let to = dir.join(&file);
        // An earlier copy may be running, and is then not writable but can be replaced.
        let _ = fs::remove_file(&to);
        fs::copy(&from, &to).map_err(|e| fail(&from, e))?;
        files.push(file);
    }
    let to = dir.join("README.txt");
    fs::write(&to, readme()).map_err(|e| fail(&to, e))?;
    files.push("README.txt".to_owned());
    Ok(files)
}

fn readme() -> String {
    let mut text = format!(
        "hedgerow {}: programs that run by themselves; their data is inside.\n\
         Built for {} on {}.\n",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH,
        std::env::consts::OS,
    );
    for (name, about) in PROGRAMS {
        text.push_str(&format!("\n{name}: {about}\n"));
    }
    text.push_str(
        "\nVulkan needs a loader (libvulkan.so.1) and a driver; both are found at run time, and\n\
         without them the host driver still runs. In the environment:\n\
         \x20   HEDGEROW_VULKAN_DEVICE=NAME   the device, by index or by part of its name\n\
         \x20   HEDGEROW_VALIDATION=1         with the validation layers; their messages are failures\n",
    );
    text
}

/// The `dist` row: collect, then run the copies where nothing points back to the tree.
pub(crate) fn check(run: &mut RowRun) {
    let built = run.cargo(&Profile::Release.build_args(&names()));
    if built.is_none_or(|ended| ended.code != Some(0)) {
        return run.error("the programs did not build".to_owned());
    }
    let scratch = std::env::temp_dir().join(format!("hedgerow-dist-{}", std::process::id()));
    match copy(&scratch) {
        Ok(_) => {
            for name in names() {
                let bytes = fs::read(scratch.join(name)).unwrap_or_default();
                let names_tree = names_source_tree(&bytes, &crate::root());
                run.checked(if names_tree {
                    vec![format!("{name} names the source tree: its data is not inside")]
                } else {
                    Vec::new()
                });
            }
            alone(run, &scratch, "demo", &["--driver", "host", "--out", "pictures"]);
            alone(run, &scratch, "conformance", &["--matrix", "host", "--list"]);
        }
        Err(message) => run.error(message),
    }
    // What is left behind in a temporary directory is no failure.
    let _ = fs::remove_dir_all(&scratch);
}

fn alone(run: &mut RowRun, dir: &Path, name: &str, args: &[&str]) {
    let mut command = Command::new(dir.join(name));
    command.args(args).current_dir(dir).env_clear();
    match run.command(command) {
        Some(ended) if ended.code == Some(0) => run.passed(),
        Some(ended) => run.checked(vec![format!(
            "{name} {} by itself: exit status {:?}",
            args.join(" "),
            ended.code
        )]),
        None => {}
    }
}

/// Whether a program holds the path of the package it was built from, as `CARGO_MANIFEST_DIR`
/// would put it there. (Debug information has the top of the tree, which nothing opens.)
fn names_source_tree(program: &[u8], root: &Path) -> bool {
    let path = root.join("host-tests");
    let path = path.to_string_lossy();
    let path = path.as_bytes();
    !path.is_empty() && program.windows(path.len()).any(|window| window == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readme_has_every_program() {
        let text = readme();
        for name in names() {
            assert!(text.contains(&format!("./{name}")), "{name}");
        }
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    }

    #[test]
    fn paths_in_programs() {
        let root = Path::new("/a/tree");
        assert!(names_source_tree(b"..../a/tree/host-tests/data/x.png...", root));
        assert!(!names_source_tree(b".../a/tree...host-tests/src/lib.rs", root));
    }
}
