//! Runs the rows of the matrix, keeps their output in logs, and reports: one line per row as it
//! goes, one table at the end.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::install::{self, Need};
use crate::matrix::{Count, Device, Planned, Row, Step};

/// A row that takes longer hangs.
const ROW_LIMIT: Duration = Duration::from_secs(15 * 60);

/// How many lines of a failed row's log are shown.
const TAIL: usize = 40;

/// The exit status by which a program says that it cannot run here.
const SKIP_STATUS: i32 = 77;

/// Tests that ran.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    Skipped(String),
}

/// What came of one row.
#[derive(Debug)]
struct Report {
    name: &'static str,
    outcome: Outcome,
    counts: Option<Counts>,
    time: Duration,
    errors: Vec<String>,
}

/// A row while it runs: its log, its tests and its errors so far.
#[derive(Debug)]
pub(crate) struct RowRun {
    log: File,
    /// Where the row may put files: `target/xtask/ROW`.
    pub(crate) dir: PathBuf,
    env: Vec<(&'static str, String)>,
    deadline: Instant,
    counts: Counts,
    errors: Vec<String>,
    skip: Option<String>,
}

/// How a command ended, and what it printed.
#[derive(Debug)]
pub(crate) struct Ended {
    /// `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) text: String,
}

/// Runs all planned rows and prints the report.
pub(crate) fn matrix(plan: &[Planned], install: bool) -> Result<ExitCode, String> {
    let start = Instant::now();
    let logs = crate::target_dir().join("xtask");
    fs::create_dir_all(&logs).map_err(|e| format!("{}: {e}", logs.display()))?;

    if install && let Err(message) = install::install(plan) {
        // Rows that need what is still missing say so themselves.
        println!("install: {message}");
    }

    let mut reports = Vec::new();
    for (at, planned) in plan.iter().enumerate() {
        let number = format!("[{}/{}]", at + 1, plan.len());
        let report = row(planned, &logs, &number);
        println!("{number} {}", one_line(&report));
        if report.outcome == Outcome::Failed {
            print_failure(&report, &logs);
        }
        reports.push(report);
    }

    print!("{}", summary(&reports, start.elapsed()));
    let failed = reports.iter().any(|report| report.outcome == Outcome::Failed);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn row(planned: &Planned, logs: &Path, number: &str) -> Report {
    let row = planned.row;
    let start = Instant::now();
    let reason = if row.hardware && !planned.asked {
        Some("hardware row, ask for it by name".to_owned())
    } else {
        install::why_not(row.needs)
    };
    let mut report = Report {
        name: row.name,
        outcome: Outcome::Passed,
        counts: None,
        time: Duration::ZERO,
        errors: Vec::new(),
    };
    let skip = match reason {
        Some(reason) => {
            // What an earlier run left would be taken for this run's.
            let _ = fs::remove_file(log_path(logs, row.name));
            Some(reason)
        }
        None => {
            println!("{number} {} ...", row.name);
            match run(row, logs) {
                Ok(run) => {
                    report.counts = (row.count != Count::Nothing).then_some(run.counts);
                    report.errors = run.errors;
                    run.skip
                }
                Err(e) => {
                    report.errors.push(format!("the log cannot be written: {e}"));
                    None
                }
            }
        }
    };
    report.time = start.elapsed();
    if let Some(reason) = skip {
        if planned.required {
            report.errors.push(format!("required, but skipped: {reason}"));
        } else {
            report.counts = None;
            report.outcome = Outcome::Skipped(reason);
        }
    }
    if !report.errors.is_empty() {
        report.outcome = Outcome::Failed;
    }
    report
}

fn run(row: &Row, logs: &Path) -> io::Result<RowRun> {
    let path = log_path(logs, row.name);
    // Created empty, then appended to: children and this program write to it in turn.
    File::create(&path)?;
    let mut run = RowRun {
        log: File::options().append(true).open(&path)?,
        dir: logs.join(row.name),
        env: env(row),
        deadline: Instant::now() + ROW_LIMIT,
        counts: Counts::default(),
        errors: Vec::new(),
        skip: None,
    };
    for step in row.steps {
        match *step {
            Step::Cargo(args) => {
                if let Some(ended) = run.cargo(args) {
                    run.judge(row.count, &format!("cargo {}", args.join(" ")), &ended);
                }
            }
            Step::Program(name, profile, args) => {
                let built = run.cargo(&profile.build_args(&[name]));
                if built.is_none_or(|ended| ended.code != Some(0)) {
                    run.error(format!("{name} did not build"));
                    continue;
                }
                fs::create_dir_all(&run.dir)?;
                let mut command = Command::new(crate::binary(name, profile));
                command.args(args).current_dir(&run.dir);
                crate::clean_env(&mut command);
                if let Some(ended) = run.command(command) {
                    run.judge(row.count, &format!("{name} {}", args.join(" ")), &ended);
                }
            }
            Step::Check(check) => check(&mut run),
        }
    }
    if row.count != Count::Nothing
        && run.counts.passed + run.counts.failed == 0
        && run.errors.is_empty()
        && run.skip.is_none()
    {
        run.error("ran no tests".to_owned());
    }
    Ok(run)
}

/// The environment of a row's children.
fn env(row: &Row) -> Vec<(&'static str, String)> {
    let mut env: Vec<_> = row.env.iter().map(|&(name, value)| (name, value.to_owned())).collect();
    let validate = install::validation_layer().is_some();
    match row.device {
        Device::Any => {}
        Device::Nvidia => {
            env.push(("HEDGEROW_VULKAN_DEVICE", "NVIDIA".to_owned()));
            if validate {
                env.push(("HEDGEROW_VALIDATION", "1".to_owned()));
            }
        }
        Device::Lavapipe | Device::LavapipeIfThere => {
            // Without a needed part this is only reached by rows that can do without.
            if let Some(manifest) = install::lavapipe()
                && validate
                && Need::VulkanLoader.missing().is_none()
            {
                let manifest = manifest.to_string_lossy().into_owned();
                // The second is what loaders before 1.3.207 know.
                env.push(("VK_DRIVER_FILES", manifest.clone()));
                env.push(("VK_ICD_FILENAMES", manifest));
                env.push(("HEDGEROW_VULKAN_DEVICE", "llvmpipe".to_owned()));
                env.push(("HEDGEROW_VALIDATION", "1".to_owned()));
                env.push(("HEDGEROW_REQUIRE", "vulkan".to_owned()));
            }
        }
    }
    env
}

impl RowRun {
    /// Fails the row, and goes on.
    pub(crate) fn error(&mut self, message: String) {
        self.say(&format!("error: {message}"));
        self.errors.push(message);
    }

    /// Counts a check that held.
    pub(crate) fn passed(&mut self) {
        self.counts.passed += 1;
    }

    /// Counts a check that found these, and reports them.
    pub(crate) fn checked(&mut self, found: Vec<String>) {
        if found.is_empty() {
            self.counts.passed += 1;
        } else {
            self.counts.failed += 1;
        }
        for message in found {
            self.error(message);
        }
    }

    /// Writes a line to the row's log.
    pub(crate) fn say(&mut self, line: &str) {
        // A log that cannot be written must not hide the result of the row.
        let _ = writeln!(self.log, "{line}");
    }

    /// Runs cargo at the top of the repository, its output in the log.
    pub(crate) fn cargo(&mut self, args: &[&str]) -> Option<Ended> {
        let mut command = crate::cargo();
        command.args(args);
        self.command(command)
    }

    /// Runs a command, its output in the log; `None`, and an error, if it did not end by itself.
    pub(crate) fn command(&mut self, mut command: Command) -> Option<Ended> {
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        let shown = shown(&command, &self.env);
        self.say(&shown);
        match self.capture(&mut command, self.deadline) {
            Ok(Some(ended)) => Some(ended),
            Ok(None) => {
                self.error(format!("stopped after {}: {shown}", duration(ROW_LIMIT)));
                None
            }
            Err(e) => {
                self.error(format!("does not run ({e}): {shown}"));
                None
            }
        }
    }

    /// Runs a command that may fail or hang, its output in the log; `None` if it was stopped after
    /// `limit`, or at the end of the row's own time. That is no error by itself.
    pub(crate) fn attempt(
        &mut self,
        mut command: Command,
        limit: Duration,
    ) -> io::Result<Option<Ended>> {
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        let shown = shown(&command, &self.env);
        self.say(&shown);
        self.capture(&mut command, self.deadline.min(Instant::now() + limit))
    }

    fn capture(&mut self, command: &mut Command, deadline: Instant) -> io::Result<Option<Ended>> {
        // Each command has a file of its own, so that its output can be told from the log's rest.
        let path = self.dir.with_extension("out");
        let out = File::create(&path)?;
        let mut child =
            command.stdin(Stdio::null()).stderr(out.try_clone()?).stdout(out).spawn()?;
        let code = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status.code());
            }
            if Instant::now() >= deadline {
                // Cargo's own child would outlive it. Found first, since an orphan is nobody's
                // child; ended last, since a parent goes on when its child has ended.
                let below = descendants(child.id());
                child.kill()?;
                child.wait()?;
                kill(&below);
                break None;
            }
            thread::sleep(Duration::from_millis(20));
        };
        let bytes = fs::read(&path)?;
        self.log.write_all(&bytes)?;
        fs::remove_file(&path)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(code.map(|code| Ended { code, text }))
    }

    /// Takes in a command that ran libtest's tests, or such as report like them.
    pub(crate) fn tested(&mut self, what: &str, ended: &Ended) {
        self.judge(Count::LibTest, what, ended);
    }

    /// Counts the tests of a command that ended, and takes its exit status into account.
    fn judge(&mut self, count: Count, what: &str, ended: &Ended) {
        if ended.code == Some(SKIP_STATUS)
            && let Some(reason) = skip_reason(&ended.text)
        {
            self.skip = Some(reason);
            return;
        }
        match count {
            Count::Nothing | Count::Checks => {}
            Count::LibTest => {
                self.counts.add(libtest_counts(&ended.text));
                let failed = failed_tests(&ended.text);
                if !failed.is_empty() {
                    self.error(format!("failed tests: {}", failed.join(", ")));
                }
            }
            Count::DemoLines => {
                let (counts, wrong) = demo_counts(&ended.text);
                self.counts.add(counts);
                for line in wrong {
                    self.error(line);
                }
            }
        }
        match ended.code {
            Some(0) if count == Count::LibTest && libtest_counts(&ended.text).failed > 0 => {
                self.error(format!("exit status 0 in spite of failed tests: {what}"));
            }
            Some(0) => {}
            Some(code) => self.error(format!("exit status {code}: {what}")),
            None => self.error(format!("ended by a signal: {what}")),
        }
    }
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

/// The command as one could type it.
fn shown(command: &Command, env: &[(&str, String)]) -> String {
    let mut text = "$".to_owned();
    for (name, value) in env {
        // Writing to a String cannot fail.
        let _ = write!(text, " {name}='{value}'");
    }
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let _ = write!(text, " {}", name.to_string_lossy());
    for arg in command.get_args() {
        let _ = write!(text, " {}", arg.to_string_lossy());
    }
    text
}

/// All processes below one, parents first, by Linux's process table; none elsewhere.
fn descendants(of: u32) -> Vec<u32> {
    let table: Vec<(u32, u32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            // `pid (name) state parent ...`, where the name may hold anything.
            let parent = stat.rsplit(") ").next()?.split(' ').nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect();
    let mut found = vec![of];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(table.iter().filter(|(_, p)| *p == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found.remove(0);
    found
}

fn kill(pids: &[u32]) {
    if !pids.is_empty() {
        // Those that ended meanwhile are no error.
        let _ = Command::new("kill")
            .arg("-9")
            .args(pids.iter().map(u32::to_string))
            .stderr(Stdio::null())
            .status();
    }
}

/// The sum of libtest's summary lines.
pub(crate) fn libtest_counts(text: &str) -> Counts {
    let mut counts = Counts::default();
    for line in text.lines() {
        let Some((_, fields)) = line.split_once("test result: ") else { continue };
        // `ok. 3 passed; 0 failed; ...`: the verdict is a sentence of its own.
        for field in fields.split(['.', ';']) {
            let mut words = field.split_whitespace();
            let (Some(number), Some(what)) = (words.next(), words.next()) else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match what {
                "passed" => counts.passed += number,
                "failed" => counts.failed += number,
                "ignored" => counts.ignored += number,
                _ => {}
            }
        }
    }
    counts
}

/// The names of tests that libtest reports as failed.
fn failed_tests(text: &str) -> Vec<&str> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("test ")?.strip_suffix("... FAILED"))
        .map(str::trim)
        .collect()
}

/// The keys that every line of the demo's JSON has.
const DEMO_KEYS: [&str; 9] = [
    "driver",
    "device",
    "part",
    "ok",
    "bytes_up",
    "bytes_down",
    "bytes_whole_buffer",
    "psnr_noisy",
    "psnr_denoised",
];

/// Counts the demo's lines of JSON by their `ok`, with what is wrong with them.
fn demo_counts(text: &str) -> (Counts, Vec<String>) {
    let mut counts = Counts::default();
    let mut wrong = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let missing: Vec<_> =
            DEMO_KEYS.iter().filter(|key| !line.contains(&format!("\"{key}\":"))).collect();
        let ok =
            line.split_once("\"ok\":").is_some_and(|(_, v)| v.trim_start().starts_with("true"));
        if ok && missing.is_empty() {
            counts.passed += 1;
            continue;
        }
        counts.failed += 1;
        if !missing.is_empty() {
            wrong.push(format!("keys {missing:?} are missing in {line}"));
        }
        if !ok {
            wrong.push(format!("not ok: {line}"));
        }
    }
    (counts, wrong)
}

fn skip_reason(text: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix("SKIP: ")).map(|reason| reason.trim().to_owned())
}

fn log_path(logs: &Path, name: &str) -> PathBuf {
    logs.join(format!("{name}.log"))
}

fn print_failure(report: &Report, logs: &Path) {
    let path = log_path(logs, report.name);
    if let Ok(log) = fs::read(&path) {
        let log = String::from_utf8_lossy(&log);
        println!("---- the end of {} ----", path.display());
        println!("{}", tail(&log, TAIL));
        println!("----");
    }
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n")
}

fn one_line(report: &Report) -> String {
    match &report.outcome {
        Outcome::Skipped(reason) => format!("{} skipped: {reason}", report.name),
        outcome => {
            let tests = match report.counts {
                Some(counts) => format!("tests: {}; ", tests(Some(counts))),
                None => String::new(),
            };
            format!("{} {} ({tests}{})", report.name, result(outcome), duration(report.time))
        }
    }
}

fn result(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "passed",
        Outcome::Failed => "FAILED",
        Outcome::Skipped(_) => "skipped",
    }
}

fn tests(counts: Option<Counts>) -> String {
    let Some(counts) = counts else { return "-".to_owned() };
    let mut text = (counts.passed + counts.failed).to_string();
    if counts.failed > 0 {
        let _ = write!(text, ", {} failed", counts.failed);
    }
    if counts.ignored > 0 {
        let _ = write!(text, ", {} ignored", counts.ignored);
    }
    text
}

fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 100.0 {
        return format!("{seconds:.1} s");
    }
    format!("{} min {} s", time.as_secs() / 60, time.as_secs() % 60)
}

/// An error as the table has room for it; it is whole in the list of errors.
fn shortened(error: &str) -> String {
    const MOST: usize = 90;
    if error.chars().count() <= MOST {
        return error.to_owned();
    }
    error.chars().take(MOST).chain("...".chars()).collect()
}

/// The table, the total, the errors, and the line that counts rows.
fn summary(reports: &[Report], total: Duration) -> String {
    let mut lines = vec![["row", "result", "tests", "time", "reason"].map(str::to_owned)];
    for report in reports {
        let reason = match &report.outcome {
            Outcome::Skipped(reason) => reason.clone(),
            Outcome::Failed => report.errors.first().map(|e| shortened(e)).unwrap_or_default(),
            Outcome::Passed => String::new(),
        };
        lines.push([
            report.name.to_owned(),
            result(&report.outcome).to_owned(),
            tests(report.counts),
            duration(report.time),
            reason,
        ]);
    }
    let mut widths = [0; 5];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = "\n".to_owned();
    for line in &lines {
        let [name, result, tests, time, reason] = line;
        let [w0, w1, w2, w3, _] = widths;
        let row = format!("{name:w0$}  {result:w1$}  {tests:w2$}  {time:>w3$}  {reason}");
        text.push_str(row.trim_end());
        text.push('\n');
    }
    let _ = writeln!(text, "\ntotal {}", duration(total));

    let errors: Vec<_> =
        reports.iter().flat_map(|r| r.errors.iter().map(move |error| (r.name, error))).collect();
    if !errors.is_empty() {
        text.push_str("\nerrors:\n");
        for (name, error) in errors {
            let _ = writeln!(text, "  {name}: {error}");
        }
    }

    let count = |is: fn(&Outcome) -> bool| reports.iter().filter(|r| is(&r.outcome)).count();
    let _ = writeln!(
        text,
        "\n{} passed, {} failed, {} skipped",
        count(|outcome| *outcome == Outcome::Passed),
        count(|outcome| *outcome == Outcome::Failed),
        count(|outcome| matches!(outcome, Outcome::Skipped(_))),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_lines_are_summed() {
        let text = "running 2 tests\n\
            test a ... ok\n\
            test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.1s\n\
            noise test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured\n";
        assert_eq!(libtest_counts(text), Counts { passed: 16, failed: 2, ignored: 1 });
        assert_eq!(libtest_counts("nothing here"), Counts::default());
    }

    #[test]
    fn names_of_failed_tests() {
        let text = "test a::b ... FAILED\ntest c ... ok\ntest [vulkan] s0 ... FAILED\n";
        assert_eq!(failed_tests(text), ["a::b", "[vulkan] s0"]);
    }

    #[test]
    fn demo_lines() {
        let good = "{\"driver\":\"host\",\"device\":\"host\",\"part\":\"grid\",\"ok\":true,\
            \"bytes_up\":0,\"bytes_down\":160,\"bytes_whole_buffer\":1600,\
            \"psnr_noisy\":null,\"psnr_denoised\":null}";
        let text = format!("words\n{good}\n{}\n", good.replace("true", "false"));
        let (counts, wrong) = demo_counts(&text);
        assert_eq!(counts, Counts { passed: 1, failed: 1, ignored: 0 });
        assert_eq!(wrong.len(), 1);
        let (counts, wrong) = demo_counts(&good.replace("\"psnr_noisy\":null,", ""));
        assert_eq!((counts.failed, wrong.len()), (1, 1));
        assert!(wrong.iter().all(|line| line.contains("psnr_noisy")));
    }

    #[test]
    fn reasons_to_skip() {
        assert_eq!(skip_reason("x\nSKIP: no device\n").as_deref(), Some("no device"));
        assert_eq!(skip_reason("skip\n"), None);
    }

    fn report(name: &'static str, outcome: Outcome, errors: &[&str]) -> Report {
        Report {
            name,
            outcome,
            counts: Some(Counts { passed: 3, failed: 0, ignored: 1 }),
            time: Duration::from_millis(1500),
            errors: errors.iter().map(|&error| error.to_owned()).collect(),
        }
    }

    #[test]
    fn the_table_and_its_last_line() {
        let reports = [
            report("fmt", Outcome::Passed, &[]),
            report("unit", Outcome::Failed, &["first", "second"]),
            report("nvidia", Outcome::Skipped("no GPU".to_owned()), &[]),
        ];
        let text = summary(&reports, Duration::from_secs(200));
        assert!(text.contains("fmt     passed   3, 1 ignored  1.5 s\n"), "{text}");
        assert!(text.contains("total 3 min 20 s\n"), "{text}");
        assert!(text.contains("  unit: first\n  unit: second\n"), "{text}");
        assert!(text.contains("no GPU"), "{text}");
        assert_eq!(text.lines().last(), Some("1 passed, 1 failed, 1 skipped"));
        assert!(text.ends_with('\n'));
    }

    #[test]
    fn tails() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc");
        assert_eq!(tail("a", 2), "a");
        assert_eq!(tail("", 2), "");
    }

    #[test]
    fn lines_of_rows() {
        let line = |outcome| one_line(&report("unit", outcome, &[]));
        assert_eq!(line(Outcome::Passed), "unit passed (tests: 3, 1 ignored; 1.5 s)");
        assert_eq!(line(Outcome::Skipped("no GPU".to_owned())), "unit skipped: no GPU");
        assert_eq!(shortened(&"x".repeat(90)).len(), 90);
        assert_eq!(shortened(&"x".repeat(91)).len(), 93);
    }

    fn row_run(name: &str, limit: Duration) -> RowRun {
        let dir =
            std::env::temp_dir().join(format!("hedgerow-xtask-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        RowRun {
            log: File::create(dir.join("log")).expect("a log"),
            dir,
            env: Vec::new(),
            deadline: Instant::now() + limit,
            counts: Counts::default(),
            errors: Vec::new(),
            skip: None,
        }
    }

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn exit_statuses() {
        let mut run = row_run("statuses", Duration::from_secs(60));
        let ended = run.command(sh("echo 'test result: ok. 2 passed; 0 failed'")).expect("ended");
        run.judge(Count::LibTest, "sh", &ended);
        assert_eq!((run.counts.passed, run.errors.len()), (2, 0));

        // A status of 77 is a skip only with a reason.
        let ended = run.command(sh("echo SKIP: no device; exit 77")).expect("ended");
        run.judge(Count::LibTest, "sh", &ended);
        assert_eq!((run.skip.take().as_deref(), run.errors.len()), (Some("no device"), 0));
        let ended = run.command(sh("exit 77")).expect("ended");
        run.judge(Count::LibTest, "sh", &ended);
        assert_eq!((run.skip.take(), run.errors.len()), (None, 1));

        let ended = run.command(sh("kill -9 $$")).expect("ended");
        run.judge(Count::Nothing, "sh", &ended);
        assert!(run.errors.iter().any(|error| error.contains("signal")));

        assert!(run.command(Command::new("/no/such/program")).is_none());
        assert!(run.errors.iter().any(|error| error.contains("does not run")));
        fs::remove_dir_all(&run.dir).expect("removed");
    }

    #[test]
    fn a_row_that_hangs_is_stopped_with_its_children() {
        let mut run = row_run("hangs", Duration::from_millis(300));
        let start = Instant::now();
        assert!(run.command(sh("echo $$; sleep 61 & sleep 62; echo never")).is_none());
        assert!(start.elapsed() < Duration::from_secs(20));
        assert!(run.errors.iter().any(|error| error.starts_with("stopped after")));
        let log = fs::read_to_string(run.dir.join("log")).expect("a log");
        assert!(!log.lines().any(|line| line == "never"));
        fs::remove_dir_all(&run.dir).expect("removed");
    }
}
