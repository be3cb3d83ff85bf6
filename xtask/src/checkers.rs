//! The rows that are built apart from all others: trees under a model checker, tests under sanitizers.
//!
//! Each has a target directory of its own below `target`, since every crate is built otherwise there.
//! A sanitizer that sees nothing may be blind, so it is shown mistakes first (`HEDGEROW_PLANTED` of the stress
//! test), and has to name each.

use std::fs;
use std::process::Command;

use crate::run::RowRun;

/// The stress test, which holds the planted mistakes too.
const STRESS: [&str; 2] = ["--package=hedgerow-host", "--test=stress"];

/// Leaked on purpose: device memory that tests make without an allocator's help.
const MEANT_LEAKS: &str = "leak:common::host\n";

/// A build of its own.
#[derive(Clone, Copy)]
struct Build {
    /// Of the directory below `target`.
    name: &'static str,
    flags: &'static str,
    /// Whether the compiler must be told to accept flags that are not stable.
    unstable: bool,
    /// More of cargo's arguments.
    config: &'static [&'static str],
}

/// Optimizing others' code costs more than it saves, where that is not what runs.
const OTHERS_AS_THEY_ARE: &[&str] = &["--config=profile.dev.package.'*'.opt-level=0"];

const MODELS: Build =
    Build { name: "models", flags: "--cfg hedgerow_loom", unstable: false, config: &[] };

const TSAN: Build = Build {
    name: "tsan",
    // The standard library is the one there is, not built for the sanitizer.
    flags: "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer",
    unstable: true,
    config: OTHERS_AS_THEY_ARE,
};

const ASAN: Build = Build {
    name: "asan",
    flags: "-Zsanitizer=address",
    unstable: true,
    config: OTHERS_AS_THEY_ARE,
};

/// The `models` row.
pub(crate) fn models(run: &mut RowRun) {
    let cargo = MODELS.test(&["--package=hedgerow-host", "--test=models"]);
    tested(run, "the models", cargo);
}

/// Makes a cargo build for the model checker, below a target directory.
pub(crate) fn models_settings(command: &mut Command, target: &std::path::Path) {
    MODELS.settings(command);
    command.env("CARGO_TARGET_DIR", target.join(MODELS.name));
}

/// The `tsan` row.
pub(crate) fn thread_sanitizer(run: &mut RowRun) {
    if sees(run, TSAN, "race", "ThreadSanitizer: data race", "planted::race") {
        tested(run, "the stress test", TSAN.test(&STRESS));
    }
}

/// The `asan` row.
pub(crate) fn address_sanitizer(run: &mut RowRun) {
    if !sees(run, ASAN, "overflow", "AddressSanitizer: heap-buffer-overflow", "planted::overflow")
        || !sees(run, ASAN, "leak", "LeakSanitizer: detected memory leaks", "Heap>::take")
    {
        return;
    }
    let meant = run.dir.with_extension("leaks");
    if let Err(e) = fs::write(&meant, MEANT_LEAKS) {
        return run.error(format!("{}: {e}", meant.display()));
    }
    for tests in [
        &["--package=hedgerow", "--package=hedgerow-host", "--lib", "--tests"][..],
        // Mesa is not for a sanitizer to judge.
        &["--package=hedgerow-tests", "--test=oracle", "--", "--skip=vulkan"],
    ] {
        let mut cargo = ASAN.test(tests);
        cargo
            // A test asks for more memory than there is, and wants to hear so.
            .env("ASAN_OPTIONS", "allocator_may_return_null=1")
            .env("LSAN_OPTIONS", format!("suppressions={}", meant.display()))
            .env("HEDGEROW_SEEDS", "60")
            .env("HEDGEROW_STRESS_SECONDS", "2");
        tested(run, &tests.join(" "), cargo);
    }
}

/// Whether a sanitizer reports a planted mistake, and where it is (of a leak: where the memory came from).
fn sees(run: &mut RowRun, build: Build, mistake: &str, report: &str, place: &str) -> bool {
    let mut cargo = build.test(&STRESS);
    cargo.env("HEDGEROW_PLANTED", mistake);
    let Some(ended) = run.command(cargo) else { return false };
    let seen = ended.code != Some(0) && ended.text.contains(report) && ended.text.contains(place);
    let blind = format!("the sanitizer does not see a planted {mistake}");
    run.checked(if seen { Vec::new() } else { vec![blind] });
    seen
}

fn tested(run: &mut RowRun, what: &str, command: Command) {
    if let Some(ended) = run.command(command) {
        run.tested(what, &ended);
    }
}

impl Build {
    /// Cargo, to test with these arguments.
    fn test(self, args: &[&str]) -> Command {
        let mut cargo = crate::cargo();
        cargo.args(["test", "--quiet", "--no-fail-fast"]).args(self.config);
        self.settings(&mut cargo);
        if self.unstable {
            // Named, so that build scripts and macros are built without the flags.
            let target = rustc(&["-vV"]).as_deref().and_then(host_in).unwrap_or_default();
            cargo.args(["--target", &target]);
        }
        cargo.args(args);
        cargo
    }

    fn settings(self, command: &mut Command) {
        command
            .env("CARGO_TARGET_DIR", crate::target_dir().join(self.name))
            .env("RUSTFLAGS", self.flags)
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            // What runs here runs long: a little optimization pays.
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        if self.unstable {
            command.env("RUSTC_BOOTSTRAP", "1");
        }
    }
}

/// What the compiler answers.
pub(crate) fn rustc(args: &[&str]) -> Option<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(args).current_dir(crate::root()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The machine that a compiler runs on, by its `-vV`.
fn host_in(version: &str) -> Option<String> {
    version.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_compiler() {
        let version =
            "rustc 1.95.0 (x 2026-04-14)\nbinary: rustc\nhost: x86_64-unknown-linux-gnu\n";
        assert_eq!(host_in(version).as_deref(), Some("x86_64-unknown-linux-gnu"));
        assert_eq!(host_in("rustc 1.95.0"), None);
        assert!(rustc(&["-vV"]).as_deref().and_then(host_in).is_some());
        assert_eq!(rustc(&["--no-such-option"]), None);
    }

    #[test]
    fn builds_are_apart() {
        let cargo = TSAN.test(&STRESS);
        let args: Vec<_> = cargo.get_args().map(|arg| arg.to_string_lossy()).collect();
        assert!(args.iter().any(|arg| arg == "--target") && args.iter().any(|a| a == STRESS[1]));
        let dirs = [MODELS, TSAN, ASAN].map(|build| build.name);
        assert!(dirs[0] != dirs[1] && dirs[1] != dirs[2] && dirs[0] != dirs[2]);
    }
}
