//! hedgerow's build and test runner: the matrix, the demo, and how good the tests are.
//!
//! The matrix is data ([`matrix`]); [`run`] executes it and reports; the other modules are the
//! rows that are more than a command line, and what rows need from the machine.

mod breaks;
mod checkers;
mod coverage;
mod dist;
mod install;
mod matrix;
mod mutants;
mod no_std;
mod run;
mod tidy;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::matrix::TestOptions;

const HELP: &str = "\
hedgerow's build and test runner

usage: cargo xtask COMMAND [OPTIONS]

commands:
  test      build and run the test matrix, with one table at the end
  demo      build the demo (release) and run it with the arguments given
  dist      collect the programs as plain binaries that run without cargo
  coverage  which lines of the core the tests run
  mutants   which small mistakes in the core's pure layers its tests notice

`cargo xtask COMMAND --help` says more about one of them.
";

const TEST_HELP: &str = "\
builds and runs the test matrix

usage: cargo xtask test [OPTIONS]

options:
  --driver D       only the rows of driver D (may be repeated, or a comma separated list)
  --only ROW       only this row (may be repeated, or a comma separated list)
  --list           print the rows selected and what they need, and run nothing
  --require WHAT   a skip of a required row is a failure. WHAT is `all` (every row that
                   --install can satisfy) or a comma separated list of rows and drivers
  --install        on Debian or Ubuntu, as root: install the packages that rows need and lack
  -h, --help       this text

Rows that need special hardware run only when they are named. Each row's output is in
target/xtask/ROW.log. The last line printed is `N passed, N failed, N skipped`, counting rows;
the exit status is 0 if none failed, 1 if one did, 2 for bad arguments.
";

const DEMO_HELP: &str = "\
builds the demo (release) and runs it

usage: cargo xtask demo [ARGS]

Every argument goes to the demo as it is, among them:
  --driver D    run on this driver (may be repeated); without it, on every driver there is
  --json        one line of JSON for each driver and part
  --out DIR     where the pictures go

`cargo xtask demo -- --help` prints the demo's own help. The exit status is the demo's.
";

const DIST_HELP: &str = "\
collects the programs as plain binaries, with their data inside

usage: cargo xtask dist DIR

Builds them (release) and copies them to DIR, with a README.txt that says how to run them. They
need neither cargo nor the source tree.
";

const COVERAGE_HELP: &str = "\
counts which lines of the core the tests run that need no GPU

usage: cargo xtask coverage [OPTIONS]

options:
  --min N      fail if fewer than N percent of the lines are run
  --install    on Debian or Ubuntu, as root: install LLVM's tools if they are missing
  -h, --help   this text

Needs llvm-profdata and llvm-cov of the LLVM that rustc has (`rustc -vV` says which). What is not run
is listed at the end; host-tests/coverage.md says why.
";

const MUTANTS_HELP: &str = "\
makes small mistakes in the pure layers of the core, one by one, and runs its unit tests

usage: cargo xtask mutants [OPTIONS]

options:
  --shard K/N    only part K of N, the first of which is 0
  --only REGEX   only mutants whose line in `cargo mutants --list` matches
  --install      install cargo-mutants (from crates.io) if it is missing
  --overwrite    keep the table in host-tests/mutants/results.txt
  -h, --help     this text

Fails if a mistake goes unnoticed that host-tests/mutants/explained.txt does not explain. All of it takes
most of an hour.
";

/// What the command line asks for.
#[derive(Debug)]
enum Task {
    Help(&'static str),
    Test(TestOptions),
    Demo(Vec<OsString>),
    Dist(PathBuf),
    Coverage(coverage::Options),
    Mutants(mutants::Options),
}

fn main() -> ExitCode {
    let task = match parse(lexopt::Parser::from_env()) {
        Ok(task) => task,
        Err(message) => return usage_error(&message),
    };
    let result = match task {
        Task::Help(text) => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Task::Test(options) => match matrix::plan(&options) {
            Err(message) => return usage_error(&message),
            Ok(plan) if options.list => {
                print!("{}", matrix::list(&plan));
                return ExitCode::SUCCESS;
            }
            Ok(plan) => run::matrix(&plan, options.install),
        },
        Task::Demo(args) => demo(&args),
        Task::Dist(dir) => dist::collect(&dir).map(|()| ExitCode::SUCCESS),
        Task::Coverage(options) => coverage::run(&options),
        Task::Mutants(options) => mutants::run(&options),
    };
    result.unwrap_or_else(|message| {
        eprintln!("error: {message}");
        ExitCode::FAILURE
    })
}

fn usage_error(message: &str) -> ExitCode {
    eprintln!("error: {message}\n\n`cargo xtask --help` shows what there is");
    ExitCode::from(2)
}

fn parse(mut parser: lexopt::Parser) -> Result<Task, String> {
    use lexopt::prelude::*;
    let arg = parser.next().map_err(|e| e.to_string())?;
    match arg {
        None => Err("a command is missing: test, demo, dist, coverage or mutants".into()),
        Some(Long("help") | Short('h')) => Ok(Task::Help(HELP)),
        Some(Value(command)) => match command.to_str() {
            Some("help") => Ok(Task::Help(HELP)),
            Some("test") => parse_test(&mut parser),
            Some("demo") => parse_demo(&mut parser),
            Some("dist") => parse_dist(&mut parser),
            Some("coverage") => parse_coverage(&mut parser),
            Some("mutants") => parse_mutants(&mut parser),
            _ => Err(format!(
                "no command `{}`; there are test, demo, dist, coverage and mutants",
                command.to_string_lossy()
            )),
        },
        Some(other) => Err(other.unexpected().to_string()),
    }
}

fn parse_test(parser: &mut lexopt::Parser) -> Result<Task, String> {
    use lexopt::prelude::*;
    let mut options = TestOptions::default();
    while let Some(arg) = parser.next().map_err(|e| e.to_string())? {
        match arg {
            Long("help") | Short('h') => return Ok(Task::Help(TEST_HELP)),
            Long("driver") => options.drivers.extend(names(parser)?),
            Long("only") => options.only.extend(names(parser)?),
            Long("require") => options.require.extend(names(parser)?),
            Long("list") => options.list = true,
            Long("install") => options.install = true,
            other => return Err(format!("test: {}", other.unexpected())),
        }
    }
    Ok(Task::Test(options))
}

/// The value of an option as a list of names; an empty one is refused, since it would select all.
fn names(parser: &mut lexopt::Parser) -> Result<Vec<String>, String> {
    let value = parser.value().map_err(|e| e.to_string())?;
    let text = value.to_str().ok_or("a name is not UTF-8")?;
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    if names.iter().any(String::is_empty) {
        return Err(format!("an empty name in `{text}`"));
    }
    Ok(names)
}

fn parse_demo(parser: &mut lexopt::Parser) -> Result<Task, String> {
    let mut args: Vec<OsString> = parser.raw_args().map_err(|e| e.to_string())?.collect();
    match args.first().and_then(|first| first.to_str()) {
        Some("--help" | "-h") => return Ok(Task::Help(DEMO_HELP)),
        Some("--") => drop(args.remove(0)),
        _ => {}
    }
    Ok(Task::Demo(args))
}

fn parse_dist(parser: &mut lexopt::Parser) -> Result<Task, String> {
    use lexopt::prelude::*;
    let mut dir = None;
    while let Some(arg) = parser.next().map_err(|e| e.to_string())? {
        match arg {
            Long("help") | Short('h') => return Ok(Task::Help(DIST_HELP)),
            Value(value) if dir.is_none() => dir = Some(PathBuf::from(value)),
            other => return Err(format!("dist: {}", other.unexpected())),
        }
    }
    match dir {
        Some(dir) if !dir.as_os_str().is_empty() => Ok(Task::Dist(dir)),
        _ => Err("dist: the directory is missing".into()),
    }
}

fn parse_coverage(parser: &mut lexopt::Parser) -> Result<Task, String> {
    use lexopt::prelude::*;
    let mut options = coverage::Options::default();
    while let Some(arg) = parser.next().map_err(|e| e.to_string())? {
        match arg {
            Long("help") | Short('h') => return Ok(Task::Help(COVERAGE_HELP)),
            Long("min") => {
                let min: f64 = text(parser)?.parse().map_err(|e| format!("--min: {e}"))?;
                if !(0.0..=100.0).contains(&min) {
                    return Err(format!("--min: {min} is no percentage"));
                }
                options.min = Some(min);
            }
            Long("install") => options.install = true,
            other => return Err(format!("coverage: {}", other.unexpected())),
        }
    }
    Ok(Task::Coverage(options))
}

fn parse_mutants(parser: &mut lexopt::Parser) -> Result<Task, String> {
    use lexopt::prelude::*;
    let mut options = mutants::Options::default();
    while let Some(arg) = parser.next().map_err(|e| e.to_string())? {
        match arg {
            Long("help") | Short('h') => return Ok(Task::Help(MUTANTS_HELP)),
            Long("shard") => options.shard = Some(text(parser)?),
            Long("only") => options.only = Some(text(parser)?),
            Long("install") => options.install = true,
            Long("overwrite") => options.overwrite = true,
            other => return Err(format!("mutants: {}", other.unexpected())),
        }
    }
    Ok(Task::Mutants(options))
}

/// The value of an option.
fn text(parser: &mut lexopt::Parser) -> Result<String, String> {
    let value = parser.value().map_err(|e| e.to_string())?;
    value.into_string().map_err(|value| format!("{}: not UTF-8", value.to_string_lossy()))
}

fn demo(args: &[OsString]) -> Result<ExitCode, String> {
    build(&["demo"], Profile::Release)?;
    // In the caller's directory, so that a relative --out means what it says.
    let status = Command::new(binary("demo", Profile::Release))
        .args(args)
        .status()
        .map_err(|e| format!("the demo does not start: {e}"))?;
    // A signal is no exit code; it is a failure all the same.
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, Into::into))
}

/// Which of cargo's profiles a program is built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Profile {
    /// The one the tests use, with debug assertions and overflow checks.
    Dev,
    Release,
}

impl Profile {
    /// The arguments that build `programs` of the host-tests package.
    fn build_args<'a>(self, programs: &[&'a str]) -> Vec<&'a str> {
        let mut args = vec!["build", "--quiet", "--package", "hedgerow-tests"];
        if self == Profile::Release {
            args.push("--release");
        }
        for program in programs {
            args.extend(["--bin", program]);
        }
        args
    }
}

/// Builds programs of the host-tests package with their output on the terminal.
fn build(programs: &[&str], profile: Profile) -> Result<(), String> {
    let status = cargo()
        .args(profile.build_args(programs))
        .status()
        .map_err(|e| format!("cargo does not start: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{} did not build", programs.join(", "))) }
}

/// Where cargo put a program that [`build`] built.
fn binary(program: &str, profile: Profile) -> PathBuf {
    let dir = match profile {
        Profile::Dev => "debug",
        Profile::Release => "release",
    };
    let name = format!("{program}{}", std::env::consts::EXE_SUFFIX);
    target_dir().join(dir).join(name)
}

/// The top of the repository.
fn root() -> PathBuf {
    // What cargo says now is right even if the tree was moved since this was compiled.
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    xtask.parent().map_or(xtask.clone(), Path::to_path_buf)
}

/// Cargo's target directory, found from this program's place in it: so that CARGO_TARGET_DIR and
/// the like need no parsing.
fn target_dir() -> PathBuf {
    let found = std::env::current_exe().ok();
    let found = found.as_deref().and_then(Path::parent).and_then(Path::parent);
    found.map_or_else(|| root().join("target"), Path::to_path_buf)
}

/// The cargo that runs this, at the top of the repository.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    clean_env(&mut command);
    command
}

/// Takes away what `cargo run` set for this package alone, so that children do not see it.
fn clean_env(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(args: &[&str]) -> Result<Task, String> {
        parse(lexopt::Parser::from_args(args))
    }

    #[test]
    fn test_options() {
        let args = ["test", "--driver", "host,vulkan", "--only=fmt", "--require", "all", "--list"];
        let Ok(Task::Test(options)) = task(&args) else { panic!("not a test task") };
        assert_eq!(options.drivers, ["host", "vulkan"]);
        assert_eq!(options.only, ["fmt"]);
        assert_eq!(options.require, ["all"]);
        assert!(options.list && !options.install);
    }

    #[test]
    fn demo_arguments_go_through() {
        let Ok(Task::Demo(args)) = task(&["demo", "--driver", "host", "--help"]) else {
            panic!("not a demo task")
        };
        assert_eq!(args, ["--driver", "host", "--help"]);
        let Ok(Task::Demo(args)) = task(&["demo", "--", "--help"]) else {
            panic!("not a demo task")
        };
        assert_eq!(args, ["--help"]);
    }

    #[test]
    fn options_of_coverage_and_mutants() {
        let Ok(Task::Coverage(options)) = task(&["coverage", "--min", "95", "--install"]) else {
            panic!("not a coverage task")
        };
        assert_eq!(options, coverage::Options { min: Some(95.0), install: true });
        let Ok(Task::Mutants(options)) = task(&["mutants", "--shard", "0/4", "--only=grid"]) else {
            panic!("not a mutants task")
        };
        assert_eq!(
            (options.shard.as_deref(), options.only.as_deref()),
            (Some("0/4"), Some("grid"))
        );
        assert!(!options.install && !options.overwrite);
    }

    #[test]
    fn help_of_each() {
        let commands = ["test", "demo", "dist", "coverage", "mutants"];
        let of_each = commands.map(|command| [command, "--help"]);
        for args in of_each.iter().map(|args| &args[..]).chain([&["--help"][..], &["test", "-h"]]) {
            assert!(matches!(task(args), Ok(Task::Help(_))), "{args:?}");
        }
    }

    #[test]
    fn bad_arguments() {
        for (args, say) in [
            (&[][..], "missing"),
            (&["tset"], "tset"),
            (&["--frobnicate"], "frobnicate"),
            (&["test", "--frobnicate"], "frobnicate"),
            (&["test", "fmt"], "fmt"),
            (&["test", "--only"], "only"),
            (&["test", "--only", ""], "empty"),
            (&["test", "--only", "fmt,"], "empty"),
            (&["dist"], "directory"),
            (&["dist", "a", "b"], "b"),
            (&["coverage", "--min", "most"], "--min"),
            (&["coverage", "--min", "101"], "percentage"),
            (&["coverage", "95"], "95"),
            (&["mutants", "--shard"], "shard"),
            (&["mutants", "--all"], "--all"),
        ] {
            let error = task(args).expect_err("refused");
            assert!(error.contains(say), "{args:?}: {error}");
        }
    }
}
