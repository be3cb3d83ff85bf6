//! `cargo xtask coverage`: the lines of the core that the tests without a GPU run, and those they do not.
//!
//! The compiler counts (`-C instrument-coverage`), LLVM's own tools read the counts. Raw profiles change from
//! one LLVM to the next, so the tools must be of the major version that rustc says it has; Debian has
//! each as `llvm-N`, and needs no nightly component.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::{install, tidy};

/// What `cargo xtask coverage` was asked for.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Options {
    /// Fail below this percentage.
    pub(crate) min: Option<f64>,
    pub(crate) install: bool,
}

/// Unit and integration tests, with what turns on the most of the core.
const TESTS: [&str; 10] = [
    "test",
    "--package=hedgerow",
    "--package=hedgerow-host",
    "--package=hedgerow-tests",
    "--features=hedgerow/log",
    "--lib",
    "--bins",
    "--tests",
    "--no-fail-fast",
    "--quiet",
];

/// The rows of the conformance suite that need no device.
const ROWS: [&str; 4] = ["host", "host-tiny", "host-poison", "host-two"];

/// Builds, runs, reads, and prints the table.
pub(crate) fn run(options: &Options) -> Result<ExitCode, String> {
    let rustc = Rustc::ask()?;
    let tools = match (Tools::find(rustc.llvm), options.install) {
        (Some(tools), _) => tools,
        (None, true) => {
            install::packages(&[&package(rustc.llvm)])?;
            Tools::find(rustc.llvm)
                .ok_or("the package does not bring llvm-profdata and llvm-cov")?
        }
        (None, false) => {
            return Err(format!(
                "no llvm-profdata and llvm-cov of LLVM {}, which this rustc has (Debian: {}; \
                 --install installs it)",
                rustc.llvm,
                package(rustc.llvm)
            ));
        }
    };
    let dir = crate::target_dir().join("coverage");
    let profiles = dir.join("profiles");
    // What an earlier run counted is no part of this one.
    let _ = fs::remove_dir_all(&profiles);
    fs::create_dir_all(&profiles).map_err(|e| format!("{}: {e}", profiles.display()))?;
    let bench = Bench { log: dir.join("log"), profiles, host: rustc.host, dir };
    File::create(&bench.log).map_err(|e| format!("{}: {e}", bench.log.display()))?;

    println!("building, with counters ...");
    let programs = bench.build()?;
    println!("running unit and integration tests ...");
    bench.run(bench.cargo().args(TESTS).arg("--target").arg(&bench.host))?;
    let conformance = programs.iter().find(|path| path.file_stem() == Some("conformance".as_ref()));
    let conformance = conformance.ok_or("cargo built no program named conformance")?;
    for row in ROWS {
        println!("running conformance, row {row} ...");
        let mut command = Command::new(conformance);
        bench.run(bench.without_vulkan(&mut command).args(["--matrix", row]))?;
    }

    let lcov = tools.read(&bench, &programs)?;
    let files = lines_by_file(&lcov, &crate::root().join("core/src"))?;
    print!("{}", table(&files));
    let percent = sum(&files).percent();
    match options.min {
        Some(min) if percent < min => {
            println!("\n{percent:.2} % is less than the {min} % asked for");
            Ok(ExitCode::FAILURE)
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn package(llvm: u32) -> String {
    format!("llvm-{llvm}")
}

/// What rustc says of itself.
struct Rustc {
    host: String,
    /// The major version of its LLVM.
    llvm: u32,
}

impl Rustc {
    fn ask() -> Result<Self, String> {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let output = Command::new(rustc).current_dir(crate::root()).arg("-vV").output();
        let output = output.map_err(|e| format!("rustc does not start: {e}"))?;
        Self::parse(&String::from_utf8_lossy(&output.stdout))
            .ok_or_else(|| "rustc -vV does not say its host and its LLVM".to_owned())
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let llvm = field("LLVM version: ")?.split('.').next()?.parse().ok()?;
        Some(Self { host: field("host: ")?.trim().to_owned(), llvm })
    }
}

/// LLVM's tools.
struct Tools {
    profdata: OsString,
    cov: OsString,
}

impl Tools {
    /// As Debian names them, or without a number if the version is right.
    fn find(llvm: u32) -> Option<Self> {
        [format!("-{llvm}"), String::new()].iter().find_map(|suffix| {
            let tool = |name: &str| OsString::from(format!("{name}{suffix}"));
            let tools = Self { profdata: tool("llvm-profdata"), cov: tool("llvm-cov") };
            [&tools.profdata, &tools.cov].iter().all(|tool| is_of(tool, llvm)).then_some(tools)
        })
    }

    /// What was counted, in the format of lcov.
    fn read(&self, bench: &Bench, programs: &[PathBuf]) -> Result<String, String> {
        let merged = bench.dir.join("merged.profdata");
        let raw = fs::read_dir(&bench.profiles).map_err(|e| e.to_string())?;
        let raw: Vec<PathBuf> = raw.filter_map(|entry| Some(entry.ok()?.path())).collect();
        let mut merge = Command::new(&self.profdata);
        let output = merge.args(["merge", "--sparse", "-o"]).arg(&merged).args(raw).output();
        let output = output.map_err(|e| e.to_string())?;
        if !output.status.success() {
            return Err(format!("llvm-profdata: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let mut export = Command::new(&self.cov);
        export.args(["export", "--format=lcov", "--instr-profile"]).arg(&merged);
        for program in programs {
            export.arg("--object").arg(program);
        }
        let output = export.output().map_err(|e| e.to_string())?;
        if !output.status.success() {
            return Err(format!("llvm-cov: {}", String::from_utf8_lossy(&output.stderr)));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn is_of(tool: &OsString, llvm: u32) -> bool {
    // An old llvm-profdata knows no --version of its own; each knows that of `show`.
    let output = Command::new(tool).args(["show", "--version"]).stderr(Stdio::null()).output();
    output.is_ok_and(|output| {
        major_version(&String::from_utf8_lossy(&output.stdout)).is_some_and(|found| found == llvm)
    })
}

/// From a tool's `LLVM version 22.1.8`.
fn major_version(text: &str) -> Option<u32> {
    text.split_once("LLVM version ")?.1.split('.').next()?.trim().parse().ok()
}

/// Where it is built and what the programs write.
struct Bench {
    dir: PathBuf,
    profiles: PathBuf,
    log: PathBuf,
    host: String,
}

impl Bench {
    /// A target of its own, since the flags are others. Naming the host's target leaves build scripts and
    /// macros without counters.
    fn cargo(&self) -> Command {
        let mut cargo = crate::cargo();
        let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
        cargo.env_remove("CARGO_ENCODED_RUSTFLAGS");
        cargo.env("RUSTFLAGS", format!("{flags} -C instrument-coverage").trim());
        cargo.env("CARGO_TARGET_DIR", self.dir.join("target"));
        self.without_vulkan(&mut cargo);
        cargo
    }

    /// The figure must not depend on which GPUs a machine has.
    fn without_vulkan<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("VK_DRIVER_FILES", "/dev/null").env("VK_ICD_FILENAMES", "/dev/null");
        command.env_remove("HEDGEROW_REQUIRE");
        // One file for each program, which all its runs add to.
        command.env("LLVM_PROFILE_FILE", self.profiles.join("%m.profraw"))
    }

    /// The programs that the tests are.
    fn build(&self) -> Result<Vec<PathBuf>, String> {
        let mut cargo = self.cargo();
        cargo.args(TESTS).args(["--no-run", "--message-format=json", "--target"]).arg(&self.host);
        let output = cargo.stderr(Stdio::inherit()).output();
        let output = output.map_err(|e| format!("cargo does not start: {e}"))?;
        if !output.status.success() {
            return Err("the tests do not build".to_owned());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().filter_map(executable).collect())
    }

    fn run(&self, command: &mut Command) -> Result<(), String> {
        let fail = |e: std::io::Error| format!("{}: {e}", self.log.display());
        let log = File::options().append(true).open(&self.log).map_err(fail)?;
        let error = log.try_clone().map_err(fail)?;
        let status = command.stdin(Stdio::null()).stdout(log).stderr(error).status();
        let status = status.map_err(|e| format!("{command:?}: {e}"))?;
        if status.success() {
            return Ok(());
        }
        Err(format!("tests failed ({status}), {} says which", self.log.display()))
    }
}

/// The program that one of cargo's JSON messages names.
fn executable(message: &str) -> Option<PathBuf> {
    let path = message.split_once("\"executable\":\"")?.1.split_once('"')?.0;
    Some(PathBuf::from(path.replace("\\\\", "\\")))
}

/// Lines with code in one file: line number to whether a test ran it.
type Lines = BTreeMap<usize, bool>;

/// The lines of the core, without those of its tests; files by their path below `dir`.
fn lines_by_file(lcov: &str, dir: &Path) -> Result<BTreeMap<String, Lines>, String> {
    let mut files = parse(lcov, dir);
    files.retain(|path, _| !tidy::is_test_file(path));
    for (path, lines) in &mut files {
        let text = fs::read_to_string(dir.join(path)).map_err(|e| format!("{path}: {e}"))?;
        let end = tidy::lines_before_tests(&text);
        lines.retain(|line, _| *line <= end);
    }
    if files.is_empty() {
        return Err("llvm-cov names no file of the core".to_owned());
    }
    Ok(files)
}

fn parse(lcov: &str, dir: &Path) -> BTreeMap<String, Lines> {
    let mut files = BTreeMap::<String, Lines>::new();
    let mut here: Option<&mut Lines> = None;
    for line in lcov.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            let path = Path::new(path).strip_prefix(dir).ok().and_then(Path::to_str);
            here = path.map(|path| files.entry(path.replace('\\', "/")).or_default());
        } else if let (Some(lines), Some(data)) = (&mut here, line.strip_prefix("DA:")) {
            let mut data = data.split(',').map_while(|n| n.parse::<usize>().ok());
            if let (Some(at), Some(count)) = (data.next(), data.next()) {
                *lines.entry(at).or_default() |= count > 0;
            }
        }
    }
    files
}

/// Lines with code, and how many of them ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Share {
    ran: usize,
    of: usize,
}

impl Share {
    fn in_lines(lines: &Lines) -> Self {
        Self { ran: lines.values().filter(|ran| **ran).count(), of: lines.len() }
    }

    fn percent(self) -> f64 {
        if self.of == 0 { 100.0 } else { 100.0 * self.ran as f64 / self.of as f64 }
    }
}

fn sum(files: &BTreeMap<String, Lines>) -> Share {
    files.values().map(Share::in_lines).fold(Share::default(), |sum, share| Share {
        ran: sum.ran + share.ran,
        of: sum.of + share.of,
    })
}

/// The lines that did not run, neighbours joined. Lines without code between two do not part them.
fn uncovered(lines: &Lines) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    let mut open = false;
    for (line, ran) in lines {
        match ranges.last_mut() {
            _ if *ran => open = false,
            Some(range) if open => range.1 = *line,
            _ => {
                ranges.push((*line, *line));
                open = true;
            }
        }
    }
    let shown = ranges.iter().map(|(from, to)| match from == to {
        true => from.to_string(),
        false => format!("{from}-{to}"),
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn table(files: &BTreeMap<String, Lines>) -> String {
    let width = files.keys().map(String::len).max().unwrap_or(0);
    let mut text = String::new();
    let mut line = |name: &str, share: Share, missed: &str| {
        let Share { ran, of } = share;
        let row = format!("{name:width$}  {ran:5} of {of:5}  {:6.2} %  {missed}", share.percent());
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", row.trim_end());
    };
    for (path, lines) in files {
        line(path, Share::in_lines(lines), "");
    }
    line("core/src", sum(files), "");
    let _ = writeln!(text, "\nnot run:");
    for (path, lines) in files.iter().filter(|(_, lines)| lines.values().any(|ran| !ran)) {
        let _ = writeln!(text, "  core/src/{path}: {}", uncovered(lines));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let text = "rustc 1.95.0\nhost: x86_64-unknown-linux-gnu\nLLVM version: 22.1.2\n";
        let rustc = Rustc::parse(text).expect("all it needs");
        assert_eq!((rustc.host.as_str(), rustc.llvm), ("x86_64-unknown-linux-gnu", 22));
        assert!(Rustc::parse("rustc 1.95.0\nhost: a\n").is_none());
        assert_eq!(major_version("Debian LLVM version 14.0.6\n  Optimized build.\n"), Some(14));
        assert_eq!(major_version("llvm-profdata: Unknown command!"), None);
    }

    #[test]
    fn programs_of_a_build() {
        let message =
            r#"{"reason":"compiler-artifact","executable":"/t/debug/deps/a-1","fresh":true}"#;
        assert_eq!(executable(message), Some(PathBuf::from("/t/debug/deps/a-1")));
        assert_eq!(executable(r#"{"reason":"compiler-artifact","executable":null}"#), None);
    }

    #[test]
    fn lines_that_any_program_ran() {
        // The same file twice, as two programs saw it.
        let lcov = "SF:/r/core/src/a.rs\nDA:1,0\nDA:2,7\nend_of_record\n\
                    SF:/r/elsewhere.rs\nDA:1,0\n\
                    SF:/r/core/src/a.rs\nDA:1,3\nDA:4,0\nLF:2\n";
        let files = parse(lcov, Path::new("/r/core/src"));
        assert_eq!(files.len(), 1);
        let lines = &files["a.rs"];
        assert_eq!(*lines, Lines::from([(1, true), (2, true), (4, false)]));
        assert_eq!(Share::in_lines(lines), Share { ran: 2, of: 3 });
    }

    #[test]
    fn ranges_of_lines() {
        let lines = |missed: &[usize], ran: &[usize]| {
            let missed = missed.iter().map(|line| (*line, false));
            uncovered(&missed.chain(ran.iter().map(|line| (*line, true))).collect())
        };
        assert_eq!(lines(&[3, 4, 6, 9], &[1, 7]), "3-6, 9");
        assert_eq!(lines(&[3], &[4]), "3");
        assert_eq!(lines(&[], &[1, 2]), "");
    }

    #[test]
    fn the_table_says_what_did_not_run() {
        let files = BTreeMap::from([
            ("a.rs".to_owned(), Lines::from([(1, true), (2, false)])),
            ("b/c.rs".to_owned(), Lines::from([(5, true), (6, true)])),
        ]);
        let text = table(&files);
        assert!(text.contains("core/src      3 of     4   75.00 %\n"), "{text}");
        assert!(text.ends_with("not run:\n  core/src/a.rs: 2\n"), "{text}");
    }
}
