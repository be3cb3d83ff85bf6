//! The `breaks` row: patches that each break one invariant of the design, and the tests that must
//! notice.
//!
//! A test that cannot fail proves nothing. Each file of `host-tests/breaks/` is a plausible mistake and
//! names the tests that must fail with it; `README.md` there says how one is written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::checkers;
use crate::run::{Ended, RowRun, libtest_counts};

/// A test that takes longer hangs. The slowest takes a few seconds.
const TEST_LIMIT: Duration = Duration::from_secs(60);

/// Of a patch that says that a test may hang with it.
const HANG_LIMIT: Duration = Duration::from_secs(15);

/// The first build has every dependency to compile.
const BUILD_LIMIT: Duration = Duration::from_secs(10 * 60);

/// Whoever writes a patch tries that alone: a part of its name, or of a test that it names.
const ONLY: &str = "HEDGEROW_BREAKS";

/// How many invariants the design has. Each must have a patch.
const INVARIANTS: usize = 11;

/// A mistake, and who must notice it.
#[derive(Debug, PartialEq, Eq)]
struct Break {
    name: String,
    /// The invariants and rules that it breaks, as `I4` or `rule 9`.
    breaks: Vec<String>,
    tests: Vec<Test>,
    may_hang: bool,
    may_crash: bool,
    files: Vec<FileEdit>,
}

/// What one patch does to one file.
#[derive(Debug, PartialEq, Eq)]
struct FileEdit {
    path: String,
    hunks: Vec<Hunk>,
}

/// Lines, and what they become.
#[derive(Debug, Default, PartialEq, Eq)]
struct Hunk {
    old: String,
    new: String,
}

/// A test, as a patch names it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    /// Trials of a row of the conformance suite.
    Conformance { row: String, filter: String },
    /// Tests of a package: of its library, or of one file of its `tests`.
    Cargo { package: String, target: String, filter: String },
    /// Trees shared by threads, under the model checker.
    Models { filter: String },
}

/// The row.
pub(crate) fn check(run: &mut RowRun) {
    let root = crate::root();
    let mut breaks = match read_all(&root.join("host-tests/breaks")) {
        Ok(breaks) => breaks,
        Err(messages) => return run.checked(messages),
    };
    run.checked(missing(&breaks));
    if let Ok(part) = std::env::var(ONLY) {
        run.say(&format!("only those named `{part}`, as {ONLY} says"));
        breaks.retain(|b| {
            b.name.contains(&part) || b.tests.iter().any(|test| test.shown().contains(&part))
        });
    }

    let place = crate::target_dir().join("breaks");
    let bench = Bench { tree: place.join("tree"), target: place.join("target") };
    if let Err(e) = copy_tree(&root, &bench.tree) {
        return run.error(format!("the tree cannot be copied: {e}"));
    }
    // Without the patches all pass, or a failure with one would say nothing.
    let mut tests: Vec<&Test> = Vec::new();
    for test in breaks.iter().flat_map(|b| &b.tests) {
        if !tests.contains(&test) {
            tests.push(test);
        }
    }
    let failing: Vec<String> =
        tests.iter().filter_map(|test| bench.passes(run, test).err()).collect();
    let usable = failing.is_empty();
    run.checked(failing);
    if !usable {
        return;
    }
    for b in &breaks {
        let start = Instant::now();
        let found = bench.try_break(run, b);
        let line = match &found {
            Ok(how) => format!("{} is noticed: {how}", b.name),
            Err(messages) => format!("{} FAILED: {}", b.name, messages.join("; ")),
        };
        let line = format!("{line} ({:.1} s)", start.elapsed().as_secs_f64());
        println!("    {line}");
        run.say(&line);
        let found = found.err().unwrap_or_default();
        run.checked(found.into_iter().map(|message| format!("{}: {message}", b.name)).collect());
    }
}

/// A copy of the tree to break, and where it is built.
struct Bench {
    tree: PathBuf,
    target: PathBuf,
}

impl Bench {
    /// Whether a test passes as things are; else what is wrong.
    fn passes(&self, run: &mut RowRun, test: &Test) -> Result<(), String> {
        self.build(run, test)?;
        let ended =
            self.run(run, test, TEST_LIMIT)?.ok_or_else(|| format!("{} hangs", test.shown()))?;
        let counts = libtest_counts(&ended.text);
        match (ended.code, counts.failed, counts.passed) {
            (Some(0), 0, 1..) => Ok(()),
            (Some(0), 0, 0) => Err(format!("{} names no test", test.shown())),
            _ => Err(format!("{} fails without any patch", test.shown())),
        }
    }

    /// Applies a patch, asks its tests, and takes it back. Says how they failed, or what is wrong.
    fn try_break(&self, run: &mut RowRun, b: &Break) -> Result<String, Vec<String>> {
        run.say(&format!("==== {}: {}", b.name, b.breaks.join(", ")));
        let mut before = Vec::new();
        let result = self.apply(b, &mut before).map_err(|message| vec![message]).and_then(|()| {
            let mut how = Vec::new();
            let mut wrong = Vec::new();
            for test in &b.tests {
                let answer = self.build(run, test).and_then(|()| {
                    let limit = if b.may_hang { HANG_LIMIT } else { TEST_LIMIT };
                    let ended = self.run(run, test, limit)?;
                    judge(b, ended.as_ref())
                });
                match answer {
                    Ok(what) => how.push(what),
                    Err(what) => wrong.push(format!("{}: {what}", test.shown())),
                }
            }
            if wrong.is_empty() { Ok(how.join(", ")) } else { Err(wrong) }
        });
        for (path, text) in before {
            if let Err(e) = fs::write(&path, text) {
                return Err(vec![format!("{} stays broken: {e}", path.display())]);
            }
        }
        result
    }

    /// Writes the patched files, and notes what they were.
    fn apply(&self, b: &Break, before: &mut Vec<(PathBuf, String)>) -> Result<(), String> {
        let mut after = Vec::new();
        for file in &b.files {
            let path = self.tree.join(&file.path);
            let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", file.path))?;
            let mut new = text.clone();
            for hunk in &file.hunks {
                new = apply(&new, hunk).map_err(|message| format!("{}: {message}", file.path))?;
            }
            after.push((path.clone(), new));
            before.push((path, text));
        }
        for (path, text) in after {
            fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        Ok(())
    }

    fn build(&self, run: &mut RowRun, test: &Test) -> Result<(), String> {
        let mut cargo = self.cargo();
        match test {
            Test::Conformance { .. } => {
                cargo.args(crate::Profile::Dev.build_args(&["conformance"]))
            }
            Test::Cargo { .. } | Test::Models { .. } => {
                test.settings(&mut cargo, &self.target);
                cargo.args(["test", "--quiet", "--no-run"]).args(test.target())
            }
        };
        match run.attempt(cargo, BUILD_LIMIT) {
            Ok(Some(Ended { code: Some(0), .. })) => Ok(()),
            Ok(Some(_)) => Err("does not compile".to_owned()),
            Ok(None) => Err("does not end compiling".to_owned()),
            Err(e) => Err(format!("cargo does not start: {e}")),
        }
    }

    /// Runs a test that was built; `None` if it had to be stopped.
    fn run(&self, run: &mut RowRun, test: &Test, limit: Duration) -> Result<Option<Ended>, String> {
        let command = match test {
            Test::Conformance { row, filter } => {
                let name = format!("conformance{}", std::env::consts::EXE_SUFFIX);
                let mut command = Command::new(self.target.join("debug").join(name));
                command.args(["--matrix", row, filter]).current_dir(&self.tree);
                crate::clean_env(&mut command);
                self.settings(&mut command);
                command
            }
            Test::Cargo { filter, .. } | Test::Models { filter } => {
                let mut cargo = self.cargo();
                test.settings(&mut cargo, &self.target);
                cargo.arg("test").args(test.target()).arg(filter);
                cargo
            }
        };
        run.attempt(command, limit).map_err(|e| format!("it does not start: {e}"))
    }

    fn cargo(&self) -> Command {
        let mut cargo = crate::cargo();
        cargo.current_dir(&self.tree);
        self.settings(&mut cargo);
        cargo
    }

    /// One build for each patch: as little as can be.
    fn settings(&self, command: &mut Command) {
        command
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_INCREMENTAL", "1")
            .env("RUST_BACKTRACE", "0")
            // One seed of a random program need not meet the mistake.
            .env_remove("HEDGEROW_SEED");
    }
}

impl Test {
    fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let own = |word: &str| word.to_owned();
        match words.as_slice() {
            ["conformance", row, filter] => {
                Ok(Self::Conformance { row: own(row), filter: own(filter) })
            }
            ["cargo", package, target, filter] => {
                let (package, target, filter) = (own(package), own(target), own(filter));
                Ok(Self::Cargo { package, target, filter })
            }
            ["models", filter] => Ok(Self::Models { filter: own(filter) }),
            _ => Err(format!(
                "`test: {text}` is neither `conformance ROW FILTER`, `cargo PACKAGE TARGET FILTER` nor \
                 `models FILTER`"
            )),
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Conformance { row, filter } => format!("conformance {row} {filter}"),
            Self::Cargo { package, target, filter } => format!("{package} {target} {filter}"),
            Self::Models { filter } => format!("models {filter}"),
        }
    }

    /// What cargo needs in its environment beyond what is the same for all.
    fn settings(&self, cargo: &mut Command, target: &Path) {
        if let Self::Models { .. } = self {
            checkers::models_settings(cargo, target);
        }
    }

    /// Cargo's arguments for the package and the target.
    fn target(&self) -> Vec<&str> {
        match self {
            Self::Conformance { .. } => Vec::new(),
            Self::Models { .. } => vec!["--package=hedgerow-host", "--test=models"],
            Self::Cargo { package, target, .. } if target == "lib" => {
                vec!["--package", package, "--lib"]
            }
            Self::Cargo { package, target, .. } => vec!["--package", package, "--test", target],
        }
    }
}

/// How a test failed under a patch; or why that is no failure of the test.
fn judge(b: &Break, ended: Option<&Ended>) -> Result<String, String> {
    let Some(ended) = ended else {
        let hung = "hangs".to_owned();
        return if b.may_hang { Ok(hung) } else { Err(hung) };
    };
    let counts = libtest_counts(&ended.text);
    if ended.code == Some(0) {
        return Err("passes all the same".to_owned());
    }
    if counts.failed > 0 {
        return Ok(format!("{} of {} failed", counts.failed, counts.passed + counts.failed));
    }
    let crashed = "ended without a verdict".to_owned();
    if b.may_crash { Ok(crashed) } else { Err(crashed) }
}

/// Complaints about invariants that no patch breaks.
fn missing(breaks: &[Break]) -> Vec<String> {
    (1..=INVARIANTS)
        .map(|n| format!("I{n}"))
        .filter(|name| !breaks.iter().any(|b| b.breaks.contains(name)))
        .map(|name| format!("no patch breaks {name}"))
        .collect()
}

fn read_all(dir: &Path) -> Result<Vec<Break>, Vec<String>> {
    let entries = fs::read_dir(dir).map_err(|e| vec![format!("{}: {e}", dir.display())])?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "patch"));
    paths.sort();
    let mut breaks = Vec::new();
    let mut wrong = Vec::new();
    for path in &paths {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let text = fs::read_to_string(path).map_err(|e| e.to_string());
        match text.and_then(|text| parse(&name, &text)) {
            Ok(b) => breaks.push(b),
            Err(message) => wrong.push(format!("{name}: {message}")),
        }
    }
    if wrong.is_empty() { Ok(breaks) } else { Err(wrong) }
}

/// Reads a patch: what it says about itself, then a unified diff.
fn parse(name: &str, text: &str) -> Result<Break, String> {
    let mut b = Break {
        name: name.to_owned(),
        breaks: Vec::new(),
        tests: Vec::new(),
        may_hang: false,
        may_crash: false,
        files: Vec::new(),
    };
    let mut about = false;
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next_if(|line| !line.starts_with("--- ")) {
        if let Some(list) = line.strip_prefix("breaks:") {
            b.breaks.extend(list.split(',').map(|what| what.trim().to_owned()));
        } else if let Some(test) = line.strip_prefix("test:") {
            b.tests.push(Test::parse(test.trim())?);
        } else if line == "may hang" {
            b.may_hang = true;
        } else if line == "may crash" {
            b.may_crash = true;
        } else {
            about |= !line.trim().is_empty();
        }
    }
    let mut hunk: Option<Hunk> = None;
    for line in lines {
        let Some(file) = b.files.last_mut() else {
            b.files.push(FileEdit { path: String::new(), hunks: Vec::new() });
            continue;
        };
        if line.starts_with("--- ") {
            file.hunks.extend(hunk.take());
            b.files.push(FileEdit { path: String::new(), hunks: Vec::new() });
        } else if file.path.is_empty() {
            let path = line.strip_prefix("+++ b/").ok_or("`+++ b/PATH` is missing")?;
            path.clone_into(&mut file.path);
        } else if line.starts_with("@@") {
            file.hunks.extend(hunk.replace(Hunk::default()));
        } else {
            let hunk = hunk.as_mut().ok_or("a line before the first `@@`")?;
            let (old, new) = match line.split_at_checked(1) {
                Some((" ", rest)) => (Some(rest), Some(rest)),
                Some(("-", rest)) => (Some(rest), None),
                Some(("+", rest)) => (None, Some(rest)),
                // Some editors take the blank of an empty line away.
                None => (Some(""), Some("")),
                _ => return Err(format!("not a line of a diff: {line}")),
            };
            for (side, text) in [(&mut hunk.old, old), (&mut hunk.new, new)] {
                if let Some(text) = text {
                    side.push_str(text);
                    side.push('\n');
                }
            }
        }
    }
    if let Some(file) = b.files.last_mut() {
        file.hunks.extend(hunk);
    }
    let empty = |file: &FileEdit| file.hunks.is_empty();
    match () {
        () if !about => Err("does not say what is wrong with it".to_owned()),
        () if b.breaks.is_empty() => Err("no `breaks:` line".to_owned()),
        () if b.tests.is_empty() => Err("no `test:` line".to_owned()),
        () if b.files.is_empty() || b.files.iter().any(empty) => Err("no diff".to_owned()),
        () => Ok(b),
    }
}

/// Replaces the hunk's old lines, which must be there exactly once. Where they are does not matter.
fn apply(text: &str, hunk: &Hunk) -> Result<String, String> {
    let starts_a_line = |at: usize| at == 0 || text.as_bytes().get(at - 1) == Some(&b'\n');
    let mut places = text.match_indices(&hunk.old).filter(|(at, _)| starts_a_line(*at));
    let first = hunk.old.lines().next().unwrap_or_default().trim();
    let Some((at, _)) = places.next().filter(|_| !hunk.old.is_empty()) else {
        return Err(format!("does not apply: no lines as from `{first}` on"));
    };
    if places.next().is_some() {
        return Err(format!("does not apply: the lines from `{first}` on are there twice"));
    }
    let (before, rest) = text.split_at(at);
    let after = rest.strip_prefix(&hunk.old).unwrap_or_default();
    Ok(format!("{before}{}{after}", hunk.new))
}

/// Makes `tree` a copy of what is or would be in the repository. Files that are as they should be are
/// left alone, so that cargo need not build them again.
fn copy_tree(root: &Path, tree: &Path) -> std::io::Result<()> {
    let files = crate::tidy::files(root);
    if tree.exists() {
        for path in crate::tidy::walk(tree) {
            if !files.contains(&path) {
                fs::remove_file(tree.join(path))?;
            }
        }
    }
    for path in &files {
        let to = tree.join(path);
        let wanted = fs::read(root.join(path))?;
        if fs::read(&to).ok().as_ref() != Some(&wanted) {
            fs::create_dir_all(to.parent().unwrap_or(tree))?;
            fs::write(&to, wanted)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "\
The reader takes what is stale.
breaks: I2, rule 9
test: conformance host i02_what
test: cargo hedgerow lib coherence::
may hang
--- a/core/src/a.rs
+++ b/core/src/a.rs
@@ -3,3 +3,3 @@ fn f()
 fn f() {
-    1
+    2

@@ -9 +9 @@
-x;
+y;
--- a/core/src/b.rs
+++ b/core/src/b.rs
@@ -1 +0,0 @@
-gone
";

    fn hunk(old: &str, new: &str) -> Hunk {
        Hunk { old: old.to_owned(), new: new.to_owned() }
    }

    #[test]
    fn a_patch_is_read() {
        let b = parse("i02_stale", PATCH).expect("a patch");
        assert_eq!(b.name, "i02_stale");
        assert_eq!(b.breaks, ["I2", "rule 9"]);
        assert!(b.may_hang && !b.may_crash);
        let (row, filter) = ("host".to_owned(), "i02_what".to_owned());
        assert_eq!(b.tests.first(), Some(&Test::Conformance { row, filter }));
        let target = b.tests.get(1).map(Test::target);
        assert_eq!(target.as_deref(), Some(&["--package", "hedgerow", "--lib"][..]));
        let files: Vec<_> = b.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(files, ["core/src/a.rs", "core/src/b.rs"]);
        let hunks: Vec<_> = b.files.iter().flat_map(|file| &file.hunks).collect();
        let expected = [
            &hunk("fn f() {\n    1\n\n", "fn f() {\n    2\n\n"),
            &hunk("x;\n", "y;\n"),
            &hunk("gone\n", ""),
        ];
        assert_eq!(hunks, expected);
    }

    #[test]
    fn what_is_wrong_with_a_patch_is_said() {
        for (from, to, say) in [
            ("The reader takes what is stale.\n", "", "what is wrong"),
            ("breaks: I2, rule 9\n", "", "breaks:"),
            ("test: ", "", "test:"),
            ("host i02", "host to i02", "neither"),
            ("+++ b/core/src/a.rs\n", "", "+++"),
            ("@@ -3,3 +3,3 @@ fn f()\n", "", "before"),
            ("+    2\n", "*    2\n", "not a line"),
            ("@@ -1 +0,0 @@\n-gone\n", "", "no diff"),
        ] {
            let text = PATCH.replace(from, to);
            assert_ne!(text, PATCH);
            let error = parse("x", &text).expect_err(say);
            assert!(error.contains(say), "{error}");
        }
        let header = PATCH.split("---").next().unwrap_or_default();
        assert_eq!(parse("x", header), Err("no diff".to_owned()));
    }

    #[test]
    fn a_hunk_applies_where_its_lines_are() {
        let text = "a\nb\nc\nab\n";
        assert_eq!(apply(text, &hunk("b\nc\n", "d\n")).as_deref(), Ok("a\nd\nab\n"));
        assert_eq!(apply(text, &hunk("a\n", "")).as_deref(), Ok("b\nc\nab\n"));
        // Only as whole lines.
        assert_eq!(apply(text, &hunk("b\n", "d\n")).as_deref(), Ok("a\nd\nc\nab\n"));
        for (old, say) in [("x\n", "no lines"), ("", "no lines")] {
            assert!(apply(text, &hunk(old, "")).expect_err("refused").contains(say));
        }
        assert!(apply("a\na\n", &hunk("a\n", "b\n")).expect_err("refused").contains("twice"));
    }

    #[test]
    fn verdicts() {
        let mut b = parse("x", PATCH).expect("a patch");
        let ended = |code, text: &str| Ended { code, text: text.to_owned() };
        let failed = ended(Some(101), "test result: FAILED. 3 passed; 2 failed; 0 ignored");
        assert_eq!(judge(&b, Some(&failed)), Ok("2 of 5 failed".to_owned()));
        let passed = ended(Some(0), "test result: ok. 3 passed; 0 failed; 0 ignored");
        assert!(judge(&b, Some(&passed)).is_err());
        let crashed = ended(None, "thread panicked");
        assert!(judge(&b, Some(&crashed)).is_err());
        assert!(judge(&b, None).is_ok());
        (b.may_hang, b.may_crash) = (false, true);
        assert!(judge(&b, Some(&crashed)).is_ok());
        assert!(judge(&b, None).is_err());
    }

    #[test]
    fn every_invariant_needs_a_patch() {
        let b = parse("x", PATCH).expect("a patch");
        let missing = missing(&[b]);
        assert_eq!(missing.len(), INVARIANTS - 1);
        assert!(!missing.iter().any(|message| message.ends_with(" I2")));
    }

    #[test]
    fn the_patches_of_this_tree_apply() {
        let root = crate::root();
        let breaks = read_all(&root.join("host-tests/breaks")).expect("patches");
        assert_eq!(missing(&breaks), [""; 0]);
        for b in &breaks {
            for file in &b.files {
                let mut text = fs::read_to_string(root.join(&file.path)).expect("a file");
                for hunk in &file.hunks {
                    text = apply(&text, hunk).unwrap_or_else(|e| panic!("{}: {e}", b.name));
                }
            }
        }
    }

    #[test]
    fn a_copy_keeps_what_is_right() {
        let dir = std::env::temp_dir().join(format!("hedgerow-breaks-{}", std::process::id()));
        let (from, to) = (dir.join("from"), dir.join("to"));
        fs::create_dir_all(from.join("a")).expect("a directory");
        fs::write(from.join("a/b"), "1").expect("written");
        fs::write(from.join("c"), "2").expect("written");
        copy_tree(&from, &to).expect("copied");
        let time = |name: &str| to.join(name).metadata().and_then(|m| m.modified()).expect("time");
        let (b, c) = (time("a/b"), time("c"));
        std::thread::sleep(Duration::from_millis(20));
        fs::write(to.join("c"), "broken").expect("written");
        fs::write(to.join("a/more"), "").expect("written");
        copy_tree(&from, &to).expect("copied");
        assert_eq!(fs::read_to_string(to.join("c")).expect("read"), "2");
        assert!(time("a/b") == b && time("c") > c && !to.join("a/more").exists());
        fs::remove_dir_all(&dir).expect("removed");
    }
}
