//! The repository's own rules, each a function from text to complaints.

use std::fs;
use std::path::{Path, PathBuf};

use xshell::{Shell, cmd};

use crate::run::RowRun;

/// What the top of the repository may hold, beside dot-files.
const TOP: [&str; 9] = [
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "core",
    "drivers",
    "host-tests",
    "xtask",
];

/// What marks unfinished work. Cut in two, so that this file does not complain about itself.
const UNFINISHED: [&str; 4] =
    [concat!("to", "do!"), concat!("unimpl", "emented!"), concat!("FIX", "ME"), concat!("XX", "X")];

/// The keyword, cut in two for the same reason.
const UNSAFE: &str = concat!("un", "safe");

/// How far above an unsafe block its SAFETY comment may end.
const SAFETY_LINES: usize = 6;

/// Complaints about one file: its path from the top, its text.
type FileCheck = fn(&str, &str) -> Vec<String>;

const FILE_CHECKS: [(&str, FileCheck); 4] = [
    ("files open with a sentence", opens_with_a_sentence),
    ("unsafe code says why it is sound", unsafe_has_reason),
    ("nothing unfinished", nothing_unfinished),
    ("the core does without std", core_without_std),
];

/// The `tidy` row.
pub(crate) fn check(run: &mut RowRun) {
    let root = crate::root();
    let files = files(&root);
    run.say(&format!("{} files", files.len()));
    let top = top_is_clean(&files);
    run.checked(top);
    let texts: Vec<(&String, String)> = files
        .iter()
        .filter(|path| [".rs", ".toml", ".md", ".wgsl"].iter().any(|end| path.ends_with(end)))
        .filter_map(|path| Some((path, fs::read_to_string(root.join(path)).ok()?)))
        .collect();
    for (name, check) in FILE_CHECKS {
        run.say(name);
        run.checked(texts.iter().flat_map(|(path, text)| check(path, text)).collect());
    }
}

/// The `msrv` row. That the running version is the stated one is what the row needs; left to
/// check is that every package states it.
pub(crate) fn check_rust_version(run: &mut RowRun) {
    let root = crate::root();
    for path in files(&root).iter().filter(|path| path.ends_with("/Cargo.toml")) {
        let text = fs::read_to_string(root.join(path)).unwrap_or_default();
        let states = text.lines().any(|line| line.trim() == "rust-version.workspace = true");
        run.checked(if states || !text.contains("[package]") {
            Vec::new()
        } else {
            vec![format!("{path}: no `rust-version.workspace = true`")]
        });
    }
}

/// Every file that is or would be in the repository, as paths from its top.
pub(crate) fn files(root: &Path) -> Vec<String> {
    let git = || -> Option<Vec<String>> {
        let shell = Shell::new().ok()?;
        shell.change_dir(root);
        let list = cmd!(shell, "git ls-files -z --cached --others --exclude-standard")
            .quiet()
            .ignore_stderr()
            .read()
            .ok()?;
        let mut files: Vec<String> =
            list.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
        files.retain(|path| root.join(path).exists());
        (!files.is_empty()).then_some(files)
    };
    // A copy of the tree without its history has the same rules.
    let mut files = git().unwrap_or_else(|| walk(root));
    files.sort();
    files.dedup();
    files
}

/// Every file below a directory, but for a repository's history and its build outputs.
pub(crate) fn walk(root: &Path) -> Vec<String> {
    let mut files = Vec::new();
    let mut dirs: Vec<PathBuf> = vec![root.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() {
                if name != ".git" && !(name == "target" && dir == root) {
                    dirs.push(path);
                }
            } else if let Some(path) = path.strip_prefix(root).ok().and_then(Path::to_str) {
                files.push(path.replace('\\', "/"));
            }
        }
    }
    files
}

fn top_is_clean(files: &[String]) -> Vec<String> {
    let mut names: Vec<&str> = files.iter().filter_map(|path| path.split('/').next()).collect();
    names.dedup();
    let stray = names.iter().filter(|name| !name.starts_with('.') && !TOP.contains(name));
    let mut wrong: Vec<String> =
        stray.map(|name| format!("{name}: does not belong at the top")).collect();
    let missing = TOP.iter().filter(|name| !names.contains(name));
    wrong.extend(missing.map(|name| format!("{name}: missing at the top")));
    wrong
}

fn opens_with_a_sentence(path: &str, text: &str) -> Vec<String> {
    if !path.ends_with(".rs") {
        return Vec::new();
    }
    let opening: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//!")).collect();
    // A crate's documentation may be its README.
    let readme = text.starts_with("#![doc = include_str!(");
    let sentence = opening.iter().take_while(|line| !line.trim().is_empty());
    let sentence = sentence.map(|line| line.trim()).collect::<Vec<_>>().join(" ");
    if readme || sentence.contains(['.', ':']) {
        return Vec::new();
    }
    vec![format!("{path}: does not open with a `//!` sentence")]
}

fn unsafe_has_reason(path: &str, text: &str) -> Vec<String> {
    if !path.ends_with(".rs") {
        return Vec::new();
    }
    let starts = [format!("{UNSAFE} {{"), format!("{UNSAFE} impl")];
    let lines: Vec<&str> = text.lines().collect();
    let mut wrong = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let is_code = !line.trim_start().starts_with("//");
        if !is_code || !starts.iter().any(|start| line.contains(start)) {
            continue;
        }
        let mut from = at.saturating_sub(SAFETY_LINES);
        // A comment that begins further up counts whole.
        while from > 0 && lines.get(from).is_some_and(|line| line.trim_start().starts_with("//")) {
            from -= 1;
        }
        let above = lines.get(from..=at).unwrap_or_default();
        if !above.iter().any(|line| line.contains("SAFETY")) {
            wrong.push(format!("{path}:{}: {UNSAFE} without a SAFETY comment", at + 1));
        }
    }
    wrong
}

fn nothing_unfinished(path: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (at, line) in text.lines().enumerate() {
        for mark in UNFINISHED {
            if line.contains(mark) {
                wrong.push(format!("{path}:{}: `{mark}`", at + 1));
            }
        }
    }
    wrong
}

/// The core's code outside its tests; comments (and so examples, which run on a host) may.
fn core_without_std(path: &str, text: &str) -> Vec<String> {
    if !path.starts_with("core/src/") || !path.ends_with(".rs") || is_test_file(path) {
        return Vec::new();
    }
    let mut wrong = Vec::new();
    for (at, line) in text.lines().take(lines_before_tests(text)).enumerate() {
        if line.contains("std::") && !line.trim_start().starts_with("//") {
            wrong.push(format!("{path}:{}: `std::` in the core", at + 1));
        }
    }
    wrong
}

/// Whether a file holds nothing but tests.
pub(crate) fn is_test_file(path: &str) -> bool {
    path == "tests.rs" || path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// How many lines a file has before its tests: a module of tests closes a file.
pub(crate) fn lines_before_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let opens = |pair: &[&str]| {
        matches!(pair, [mark, module] if mark.trim() == "#[cfg(test)]"
            && module.starts_with("mod ") && module.ends_with('{'))
    };
    lines.windows(2).position(opens).unwrap_or(lines.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn top() {
        let mut files: Vec<String> =
            TOP.iter().map(|name| (*name).to_owned()).chain([".gitignore".to_owned()]).collect();
        files.push("core/src/lib.rs".to_owned());
        files.sort();
        assert_eq!(top_is_clean(&files), Vec::<String>::new());
        files.push("notes.txt".to_owned());
        files.retain(|path| path != "README.md");
        let wrong = top_is_clean(&files);
        assert_eq!(wrong.len(), 2);
        assert!(wrong.iter().any(|w| w.starts_with("notes.txt")));
        assert!(wrong.iter().any(|w| w.starts_with("README.md")));
    }

    #[test]
    fn openings() {
        assert!(opens_with_a_sentence("a.rs", "//! What it is.\nfn f() {}\n").is_empty());
        assert!(opens_with_a_sentence("a.rs", "//! What it\n//! is.\n").is_empty());
        assert!(opens_with_a_sentence("a.rs", "#![doc = include_str!(\"R.md\")]\n").is_empty());
        assert!(opens_with_a_sentence("a.toml", "[package]\n").is_empty());
        assert_eq!(opens_with_a_sentence("a.rs", "//! tmp\n\nfn f() {}\n").len(), 1);
        assert_eq!(opens_with_a_sentence("a.rs", "use core::mem;\n").len(), 1);
        assert_eq!(opens_with_a_sentence("a.rs", "").len(), 1);
    }

    #[test]
    fn reasons_of_unsafe_code() {
        let block = format!("    let a = {UNSAFE} {{ *p }};\n");
        let check = |above: &str| unsafe_has_reason("a.rs", &format!("{above}{block}")).len();
        assert_eq!(check("    // SAFETY: p is valid\n"), 0);
        assert_eq!(check("// SAFETY: a long\n// one\n\n\n\n\n"), 0);
        assert_eq!(check("// SAFETY: a list\n// 1\n// 2\n// 3\n// 4\n// 5\n// 6\n// 7\n"), 0);
        assert_eq!(check("// SAFETY: too far\n\n\n\n\n\n\n"), 1);
        assert_eq!(check("// no reason\n"), 1);
        let wrong = unsafe_has_reason("a.rs", &format!("\n{UNSAFE} impl Send for A {{}}\n"));
        assert!(wrong.iter().any(|w| w.starts_with("a.rs:2:")), "{wrong:?}");
        assert!(unsafe_has_reason("a.rs", &format!("/// {UNSAFE} {{ }}\n")).is_empty());
        assert!(unsafe_has_reason("a.rs", &format!("{UNSAFE} fn f() {{}}\n")).is_empty());
        assert!(unsafe_has_reason("a.md", &block).is_empty());
    }

    #[test]
    fn unfinished_code() {
        for mark in UNFINISHED {
            assert_eq!(nothing_unfinished("a.rs", &format!("ok\n{mark}()\n")).len(), 1, "{mark}");
        }
        assert!(nothing_unfinished("a.rs", "done\n").is_empty());
    }

    #[test]
    fn std_in_the_core() {
        let check = |path: &str, text: &str| core_without_std(path, text).len();
        assert_eq!(check("core/src/a.rs", "use std::fmt;\n"), 1);
        assert_eq!(check("core/src/a.rs", "/// use std::fmt;\n"), 0);
        assert_eq!(check("core/src/a.rs", "#[cfg(test)]\nmod tests {\nuse std::fmt;\n"), 0);
        assert_eq!(check("core/src/a.rs", "#[cfg(test)]\nuse std::fmt;\n"), 1);
        assert_eq!(check("core/src/a/tests.rs", "use std::fmt;\n"), 0);
        assert_eq!(check("core/tests/a.rs", "use std::fmt;\n"), 0);
        assert_eq!(check("drivers/host/src/a.rs", "use std::fmt;\n"), 0);
    }

    #[test]
    fn where_tests_begin() {
        assert_eq!(lines_before_tests("a\nb\n#[cfg(test)]\nmod tests {\n}\n"), 2);
        assert_eq!(lines_before_tests("a\n#[cfg(test)]\nmod tests;\nb\n"), 4);
        assert!(
            is_test_file("tests.rs") && is_test_file("a/tests.rs") && is_test_file("a/tests/b.rs")
        );
        assert!(!is_test_file("a/contests.rs"));
    }

    #[test]
    fn the_walk_finds_what_git_does() {
        let root = crate::root();
        let walked = walk(&root);
        assert!(walked.contains(&"xtask/src/tidy.rs".to_owned()));
        assert!(files(&root).contains(&"xtask/src/tidy.rs".to_owned()));
        assert!(!walked.iter().any(|path| path.starts_with("target/")));
    }
}
