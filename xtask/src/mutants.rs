//! `cargo xtask mutants`: small mistakes, made one by one in the pure layers of the core, and whether its unit
//! tests notice.
//!
//! `cargo mutants` makes them, builds and tests; `.cargo/mutants.toml` says where and how. A mistake that no
//! test notices must be explained in `host-tests/mutants/explained.txt`, or the command fails. The
//! explanations name a mistake by file, text and number, since lines move.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

/// What `cargo xtask mutants` was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// `k/n`: part k, from 0, of n.
    pub(crate) shard: Option<String>,
    /// Only mutants whose line in the list matches.
    pub(crate) only: Option<String>,
    pub(crate) install: bool,
    /// Keep the table in the repository.
    pub(crate) overwrite: bool,
}

const EXPLAINED: &str = "host-tests/mutants/explained.txt";
const RESULTS: &str = "host-tests/mutants/results.txt";

/// Between a mistake's name and the reason why nothing can notice it.
const BECAUSE: &str = " -- ";

/// How a mutant ended, by the file in which `cargo mutants` lists it. A test that no longer ends has noticed.
const ENDS: [&str; 4] = ["caught", "timeout", "missed", "unviable"];

/// Runs `cargo mutants` and compares what it missed with what is explained.
pub(crate) fn run(options: &Options) -> Result<ExitCode, String> {
    ready(options.install)?;
    let explained = fs::read_to_string(crate::root().join(EXPLAINED)).unwrap_or_default();
    let explained = parse_explained(&explained)?;
    let list = list()?;
    let names = names(&lines(&list));

    let dir = crate::target_dir().join("mutants");
    fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut cargo = mutants();
    cargo.args(["--copy-target=false", "--output"]).arg(&dir);
    if let Some(shard) = &options.shard {
        cargo.args(["--shard", shard]);
    }
    if let Some(only) = &options.only {
        cargo.args(["--re", only]);
    }
    let status = cargo.status().map_err(|e| format!("cargo mutants does not start: {e}"))?;
    // 2 and 3: some were missed, or did not end. With anything else there is no result.
    if !matches!(status.code(), Some(0 | 2 | 3)) {
        return Err(format!("cargo mutants: {status}"));
    }
    let ends = read(&dir.join("mutants.out"))?;

    let whole = options.shard.is_none() && options.only.is_none();
    let verdict = judge(&ends, &names, &explained, whole);
    print!("\n{}", verdict.text);
    if options.overwrite {
        if !whole {
            return Err("--overwrite needs a run of all mutants".to_owned());
        }
        let path = crate::root().join(RESULTS);
        fs::write(&path, &verdict.text).map_err(|e| format!("{RESULTS}: {e}"))?;
    }
    Ok(if verdict.wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `cargo mutants` on the core; files and profile are in its configuration.
fn mutants() -> Command {
    let mut cargo = crate::cargo();
    cargo.args(["mutants", "--package", "hedgerow"]);
    cargo
}

fn ready(install: bool) -> Result<(), String> {
    const INSTALL: [&str; 3] = ["install", "--locked", "cargo-mutants"];
    let there = || crate::cargo().args(["mutants", "--version"]).output();
    if there().is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    let line = INSTALL.join(" ");
    if !install {
        return Err(format!("no cargo-mutants: `cargo {line}`, which --install runs"));
    }
    println!("install: cargo {line}");
    let status = crate::cargo().args(INSTALL).status().map_err(|e| e.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("cargo {line}: {status}")) }
}

/// Every mutant there is, one a line.
fn list() -> Result<String, String> {
    let output = mutants().arg("--list").output().map_err(|e| e.to_string())?;
    if !output.status.success() {
        return Err(format!("cargo mutants --list: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

/// `file:line:column: what` as `(file, what)`.
fn without_place(line: &str) -> Option<(&str, &str)> {
    let (place, what) = line.split_once(": ")?;
    Some((place.split(':').next()?, what))
}

/// The name of each listed mutant that stays when lines move: the same mistake, made at several places of one
/// function, is numbered.
fn names<'a>(list: &[&'a str]) -> BTreeMap<&'a str, String> {
    let mut counts = BTreeMap::<(&str, &str), usize>::new();
    let mut names = BTreeMap::new();
    for line in list {
        let Some((file, what)) = without_place(line) else { continue };
        let count = counts.entry((file, what)).or_default();
        *count += 1;
        names.insert(*line, format!("{file}: {what} #{count}"));
    }
    names
}

/// Reasons by name. A line that is no comment is `NAME -- REASON`.
fn parse_explained(text: &str) -> Result<BTreeMap<&str, &str>, String> {
    let mut explained = BTreeMap::new();
    for line in lines(text).into_iter().filter(|line| !line.starts_with('#')) {
        let Some((name, reason)) = line.split_once(BECAUSE) else {
            return Err(format!("{EXPLAINED}: no reason in `{line}`"));
        };
        if explained.insert(name, reason).is_some() {
            return Err(format!("{EXPLAINED}: `{name}` twice"));
        }
    }
    Ok(explained)
}

/// The lists of one run, in the order of [`ENDS`].
fn read(out: &Path) -> Result<[String; 4], String> {
    let mut ends = [const { String::new() }; 4];
    for (text, name) in ends.iter_mut().zip(ENDS) {
        let path = out.join(format!("{name}.txt"));
        *text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(ends)
}

struct Verdict {
    text: String,
    /// Survivors without a reason, and reasons without a survivor.
    wrong: usize,
}

/// A table by file, the survivors, and what does not agree with the explanations.
fn judge(
    ends: &[String; 4],
    names: &BTreeMap<&str, String>,
    explained: &BTreeMap<&str, &str>,
    whole: bool,
) -> Verdict {
    let mut by_file = BTreeMap::<&str, [usize; 4]>::new();
    for (at, text) in ends.iter().enumerate() {
        for (file, _) in lines(text).into_iter().filter_map(without_place) {
            if let Some(count) = by_file.entry(file).or_default().get_mut(at) {
                *count += 1;
            }
        }
    }
    let mut text = table(&by_file);

    let [caught, timeout, missed, _] = ends;
    let mut survivors: Vec<&str> = lines(missed);
    survivors.sort_by_key(|line| names.get(line));
    let mut wrong = 0;
    if !survivors.is_empty() {
        text.push_str("\nsurvivors:\n");
    }
    for line in survivors {
        let name = names.get(line).map_or(line, String::as_str);
        let reason = explained.get(name).copied().unwrap_or_else(|| {
            wrong += 1;
            "NOT EXPLAINED"
        });
        let _ = writeln!(text, "{name}{BECAUSE}{reason}");
    }
    // A reason for what is noticed, or is no longer there, would hide a survivor one day.
    let noticed: Vec<&str> = [lines(caught), lines(timeout)].concat();
    let noticed = |name: &str| noticed.iter().any(|l| names.get(l).is_some_and(|n| n == name));
    let known = |name: &str| names.values().any(|n| n == name);
    for name in explained.keys().filter(|name| noticed(name) || (whole && !known(name))) {
        wrong += 1;
        let _ = writeln!(text, "explained, but no survivor: {name}");
    }
    Verdict { text, wrong }
}

fn table(by_file: &BTreeMap<&str, [usize; 4]>) -> String {
    let width = by_file.keys().map(|file| file.len()).max().unwrap_or(0);
    let mut text = format!("{:width$}  caught  timeout  missed  unviable  score\n", "");
    let mut sum = [0; 4];
    let rows: Vec<_> = by_file
        .iter()
        .map(|(file, counts)| {
            for (sum, count) in sum.iter_mut().zip(counts) {
                *sum += count;
            }
            (*file, *counts)
        })
        .collect();
    for (file, [caught, timeout, missed, unviable]) in rows.into_iter().chain([("all", sum)]) {
        let score = score(caught + timeout, missed);
        let _ = writeln!(
            text,
            "{file:width$}  {caught:6}  {timeout:7}  {missed:6}  {unviable:8}  {score:4.1} %"
        );
    }
    text
}

/// The share of noticed mutants among those that compile, in percent.
fn score(noticed: usize, missed: usize) -> f64 {
    if noticed + missed == 0 { 100.0 } else { 100.0 * noticed as f64 / (noticed + missed) as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "a/b.rs:3:9: replace f -> bool with true\n\
                        a/b.rs:7:5: replace + with - in f\n\
                        a/b.rs:9:5: replace + with - in f\n";

    fn verdict(caught: &str, missed: &str, explained: &str, whole: bool) -> Verdict {
        let ends = [caught.to_owned(), String::new(), missed.to_owned(), String::new()];
        let explained = parse_explained(explained).expect("explanations");
        judge(&ends, &names(&lines(LIST)), &explained, whole)
    }

    #[test]
    fn names_have_numbers_instead_of_lines() {
        let names = names(&lines(LIST));
        assert_eq!(names["a/b.rs:7:5: replace + with - in f"], "a/b.rs: replace + with - in f #1");
        assert_eq!(names["a/b.rs:9:5: replace + with - in f"], "a/b.rs: replace + with - in f #2");
    }

    #[test]
    fn survivors_need_a_reason() {
        let missed = "a/b.rs:9:5: replace + with - in f\n";
        let reason = |n: u32| format!("# why\na/b.rs: replace + with - in f #{n} -- it is zero\n");
        assert_eq!(verdict("", missed, "", true).wrong, 1);
        assert_eq!(verdict("", missed, &reason(2), true).wrong, 0);
        // Of its brother, it is no reason; and one for what is noticed is wrong too.
        assert_eq!(verdict("", missed, &reason(1), false).wrong, 1);
        assert_eq!(verdict(missed, "", &reason(2), false).wrong, 1);
        // Whether a mistake is gone only a whole run can say.
        assert_eq!(verdict("", "", &reason(3), true).wrong, 1);
        assert_eq!(verdict("", "", &reason(3), false).wrong, 0);
    }

    #[test]
    fn explanations_are_checked() {
        assert!(parse_explained("a/b.rs: x #1\n").is_err());
        assert!(parse_explained("a: x #1 -- y\na: x #1 -- z\n").is_err());
        assert_eq!(parse_explained("# a -- b\n\n").map(|e| e.len()), Ok(0));
    }

    #[test]
    fn scores() {
        let text = verdict(LIST, "a/c.rs:1:1: x\n", "", false).text;
        assert!(text.contains("a/b.rs       3        0       0         0  100.0 %\n"), "{text}");
        assert!(text.contains("all          3        0       1         0  75.0 %\n"), "{text}");
        assert!(text.contains("a/c.rs:1:1: x -- NOT EXPLAINED\n"), "{text}");
        assert_eq!(score(0, 0), 100.0);
    }

    /// The file as it is must be one that the command can read.
    #[test]
    fn the_explanations_of_the_repository() {
        let text = fs::read_to_string(crate::root().join(EXPLAINED)).expect("the file");
        let explained = parse_explained(&text).expect("explanations");
        for (name, reason) in explained {
            let file = name.split(": ").next().unwrap_or_default();
            assert!(crate::root().join(file).is_file() && reason.len() > 10, "{name}");
        }
    }
}
