//! The test matrix as data: its rows, what each needs, and which of them a command line selects.

use std::fmt::Write as _;

use crate::install::Need;
use crate::run::RowRun;
use crate::{Profile, breaks, checkers, dist, no_std, tidy};

/// Whose rows `--driver` keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Driver {
    Host,
    Vulkan,
    /// The Vulkan driver on NVIDIA hardware: named apart, since most machines lack it.
    Nvidia,
}

impl Driver {
    const ALL: [Driver; 3] = [Driver::Host, Driver::Vulkan, Driver::Nvidia];

    fn name(self) -> &'static str {
        match self {
            Driver::Host => "host",
            Driver::Vulkan => "vulkan",
            Driver::Nvidia => "nvidia",
        }
    }
}

/// Which Vulkan device the row's programs see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Device {
    /// Whatever the environment says.
    Any,
    /// lavapipe alone, with the validation layers, and nothing may skip itself.
    Lavapipe,
    /// The same where it is installed; otherwise tests that need a device may skip themselves.
    LavapipeIfThere,
    /// An NVIDIA GPU, with the validation layers if the machine has them.
    Nvidia,
}

/// How a row's tests are counted. A row that counts tests fails if it ran none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    /// It has no tests: the exit status is all.
    Nothing,
    /// By libtest's summary lines.
    LibTest,
    /// By the demo's lines of JSON.
    DemoLines,
    /// The row's function counts its own checks.
    Checks,
}

/// One thing that a row does. All steps run, also after one failed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    /// Cargo with these arguments.
    Cargo(&'static [&'static str]),
    /// A program of the host-tests package: built, then run in a directory of its own.
    Program(&'static str, Profile, &'static [&'static str]),
    /// A check written here.
    Check(fn(&mut RowRun)),
}

/// One row of the matrix.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) driver: Option<Driver>,
    /// Run only when asked for by name, since no package can make a machine have it.
    pub(crate) hardware: bool,
    pub(crate) needs: &'static [Need],
    pub(crate) device: Device,
    pub(crate) env: &'static [(&'static str, &'static str)],
    pub(crate) steps: &'static [Step],
    pub(crate) count: Count,
}

/// What most rows have in common.
const ROW: Row = Row {
    name: "",
    about: "",
    driver: None,
    hardware: false,
    needs: &[],
    device: Device::Any,
    env: &[],
    steps: &[],
    count: Count::Nothing,
};

/// A row of the Vulkan driver on lavapipe.
const LAVAPIPE: Row = Row {
    driver: Some(Driver::Vulkan),
    needs: &[Need::VulkanLoader, Need::Lavapipe, Need::ValidationLayers],
    device: Device::Lavapipe,
    ..ROW
};

macro_rules! clippy_core {
    ($($what:literal),*) => {
        Step::Cargo(&[
            "clippy", "--quiet", "--package", "hedgerow", $($what,)* "--", "-D", "warnings",
        ])
    };
}

macro_rules! conformance {
    ($row:literal) => {
        &[Step::Program("conformance", Profile::Dev, &["--matrix", $row])]
    };
}

macro_rules! example {
    ($package:literal, $name:literal $(, $more:literal)*) => {
        ["run", "--quiet", "--package", $package, "--example", $name $(, $more)*]
    };
}

/// The matrix, cheap rows first.
///
/// Rows share one target directory, and the profile and features of a build are the same from row
/// to row where that can be: the conformance rows use the build of the unit tests (which has
/// overflow checks and debug assertions), demo and dist one release build.
pub(crate) static MATRIX: &[Row] = &[
    Row {
        name: "tidy",
        about: "the repository's own rules: its top, SAFETY comments, unfinished code, file heads",
        steps: &[Step::Check(tidy::check)],
        count: Count::Checks,
        ..ROW
    },
    Row {
        name: "msrv",
        about: "the matrix runs the Rust version that the manifests state",
        needs: &[Need::StatedRust],
        steps: &[Step::Check(tidy::check_rust_version)],
        count: Count::Checks,
        ..ROW
    },
    Row {
        name: "fmt",
        about: "formatted by rustfmt",
        steps: &[Step::Cargo(&["fmt", "--all", "--check"])],
        ..ROW
    },
    Row {
        name: "clippy",
        about: "clippy on every target, warnings denied",
        steps: &[
            Step::Cargo(&[
                "clippy",
                "--quiet",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ]),
            // The workspace build turns the drivers' features on; without them is another program.
            Step::Cargo(&[
                "clippy",
                "--quiet",
                "--package=hedgerow-host",
                "--lib",
                "--",
                "-D",
                "warnings",
            ]),
            Step::Cargo(&[
                "clippy",
                "--quiet",
                "--package=hedgerow-vulkan",
                "--lib",
                "--",
                "-D",
                "warnings",
            ]),
        ],
        ..ROW
    },
    Row {
        name: "features",
        about: "feature sets of the core: clippy on each, the tests with logging and the top rank",
        steps: &[
            clippy_core!("--lib"),
            clippy_core!("--lib", "--features=defmt"),
            clippy_core!("--lib", "--features=log"),
            clippy_core!("--lib", "--features=rank-6"),
            clippy_core!("--lib", "--features=rank-8"),
            // Both loggers at once; and only checked, since a defmt program does not link here.
            clippy_core!("--all-targets", "--all-features"),
            Step::Cargo(&[
                "test",
                "--package=hedgerow",
                "--lib",
                "--tests",
                "--features=log,rank-8",
                "--no-fail-fast",
            ]),
        ],
        count: Count::LibTest,
        ..ROW
    },
    Row {
        name: "no-std",
        about: "core and host driver pull neither std nor alloc: dependencies, and a build",
        steps: &[Step::Check(no_std::check)],
        count: Count::Checks,
        ..ROW
    },
    Row {
        name: "docs",
        about: "the documentation builds, warnings denied",
        env: &[("RUSTDOCFLAGS", "-D warnings")],
        steps: &[Step::Cargo(&["doc", "--quiet", "--no-deps", "--workspace", "--all-features"])],
        ..ROW
    },
    Row {
        name: "unit",
        about: "unit and integration tests of every package but the Vulkan driver",
        device: Device::LavapipeIfThere,
        // A row of its own takes longer over it.
        env: &[("HEDGEROW_STRESS_SECONDS", "1")],
        steps: &[Step::Cargo(&[
            "test",
            "--workspace",
            "--exclude=hedgerow-vulkan",
            "--exclude=hedgerow-compile-fail",
            "--lib",
            "--bins",
            "--tests",
            "--no-fail-fast",
        ])],
        count: Count::LibTest,
        ..ROW
    },
    Row {
        name: "compile-fail",
        about: "what must not compile does not, for the reason it should",
        steps: &[Step::Cargo(&["test", "--package=hedgerow-compile-fail", "--tests"])],
        count: Count::LibTest,
        ..ROW
    },
    Row {
        name: "models",
        about: "trees shared by threads under a model checker: every interleaving, within bounds",
        steps: &[Step::Check(checkers::models)],
        count: Count::LibTest,
        ..ROW
    },
    Row {
        name: "stress",
        about: "threads that do everything to one tree, on one and two devices",
        steps: &[Step::Cargo(&["test", "--package=hedgerow-host", "--test=stress"])],
        count: Count::LibTest,
        ..ROW
    },
    Row {
        name: "tsan",
        about: "the stress under ThreadSanitizer, which first must see a planted race",
        needs: &[Need::Sanitizer("tsan")],
        steps: &[Step::Check(checkers::thread_sanitizer)],
        count: Count::LibTest,
        ..ROW
    },
    Row {
        name: "asan",
        about: "tests of core and host driver, and random programs, under AddressSanitizer, which \
                first must see a planted overflow and a planted leak",
        needs: &[Need::Sanitizer("asan")],
        steps: &[Step::Check(checkers::address_sanitizer)],
        count: Count::LibTest,
        ..ROW
    },
    Row {
        name: "unit-vulkan",
        about: "unit and integration tests of the Vulkan driver, on lavapipe",
        steps: &[Step::Cargo(&[
            "test",
            "--package=hedgerow-vulkan",
            "--features=wgsl",
            "--lib",
            "--tests",
            "--no-fail-fast",
        ])],
        count: Count::LibTest,
        ..LAVAPIPE
    },
    Row {
        name: "doc-tests",
        about: "examples in the documentation",
        device: Device::LavapipeIfThere,
        steps: &[Step::Cargo(&["test", "--workspace", "--doc", "--no-fail-fast"])],
        count: Count::LibTest,
        ..ROW
    },
    Row {
        name: "conformance-host",
        about: "conformance of the host driver",
        driver: Some(Driver::Host),
        steps: conformance!("host"),
        count: Count::LibTest,
        ..ROW
    },
    Row {
        name: "conformance-host-tiny",
        about: "conformance of the host driver with tiny capacities, where writes widen",
        driver: Some(Driver::Host),
        steps: conformance!("host-tiny"),
        count: Count::LibTest,
        ..ROW
    },
    Row {
        name: "conformance-vulkan",
        about: "conformance of the Vulkan driver on lavapipe",
        steps: conformance!("vulkan"),
        count: Count::LibTest,
        ..LAVAPIPE
    },
    Row {
        name: "conformance-vulkan-strict",
        about: "the same, pretending a device with strict limits",
        steps: conformance!("vulkan-strict"),
        count: Count::LibTest,
        ..LAVAPIPE
    },
    Row {
        name: "conformance-host-poison",
        about: "conformance of the host driver, with stale bytes poisoned",
        driver: Some(Driver::Host),
        steps: conformance!("host-poison"),
        count: Count::LibTest,
        ..ROW
    },
    Row {
        name: "conformance-host-two",
        about: "conformance on two host devices, launches alternating",
        driver: Some(Driver::Host),
        steps: conformance!("host-two"),
        count: Count::LibTest,
        ..ROW
    },
    Row {
        name: "conformance-vulkan-poison",
        about: "conformance of the Vulkan driver on lavapipe, with stale bytes poisoned",
        steps: conformance!("vulkan-poison"),
        count: Count::LibTest,
        ..LAVAPIPE
    },
    Row {
        name: "conformance-vulkan-two",
        about: "conformance on two lavapipe devices, launches alternating",
        steps: conformance!("vulkan-two"),
        count: Count::LibTest,
        ..LAVAPIPE
    },
    Row {
        name: "faults",
        about: "every driver call of every conformance case fails in turn, in every way",
        driver: Some(Driver::Host),
        steps: &[
            Step::Program("conformance", Profile::Release, &["--matrix", "host-faults"]),
            Step::Program("conformance", Profile::Release, &["--matrix", "host-two-faults"]),
        ],
        count: Count::LibTest,
        ..ROW
    },
    Row {
        name: "losses",
        about: "a device is lost at every driver call of every conformance case",
        driver: Some(Driver::Host),
        steps: &[
            Step::Program("conformance", Profile::Release, &["--matrix", "host-losses"]),
            Step::Program("conformance", Profile::Release, &["--matrix", "host-two-losses"]),
        ],
        count: Count::LibTest,
        ..ROW
    },
    Row {
        name: "vulkan-faults",
        about: "every raw Vulkan call of a program fails in turn, and memory runs out, on lavapipe",
        steps: &[Step::Cargo(&[
            "test",
            "--package=hedgerow-vulkan",
            "--features=wgsl",
            "--test=answers",
            "--test=room",
            "--no-fail-fast",
        ])],
        count: Count::LibTest,
        ..LAVAPIPE
    },
    Row {
        name: "vulkan-sync",
        about: "barriers checked: planted hazards, kernels, transfers, conformance, on lavapipe",
        steps: &[
            Step::Cargo(&[
                "test",
                "--package=hedgerow-vulkan",
                "--features=wgsl",
                "--test=hazards",
                "--test=kernels",
                "--test=transfers",
                "--no-fail-fast",
            ]),
            Step::Program("conformance", Profile::Dev, &["--matrix", "vulkan-sync"]),
        ],
        count: Count::LibTest,
        ..LAVAPIPE
    },
    Row {
        name: "conformance-nvidia",
        about: "conformance of the Vulkan driver on an NVIDIA GPU",
        driver: Some(Driver::Nvidia),
        hardware: true,
        needs: &[Need::VulkanLoader, Need::NvidiaDriver],
        device: Device::Nvidia,
        steps: conformance!("nvidia"),
        count: Count::LibTest,
        ..ROW
    },
    Row {
        name: "examples",
        about: "the examples on the host driver: windows, polling, a tree in a static",
        steps: &[
            Step::Cargo(&example!("hedgerow-tests", "window")),
            Step::Cargo(&example!("hedgerow-tests", "executor")),
            Step::Cargo(&example!("hedgerow-tests", "static_tree")),
        ],
        ..ROW
    },
    Row {
        name: "examples-vulkan",
        about: "windows on lavapipe, and an engine with its own device, validated",
        steps: &[
            Step::Cargo(&example!("hedgerow-tests", "window", "--", "--driver", "vulkan")),
            Step::Cargo(&example!("hedgerow-vulkan", "engine", "--all-features")),
        ],
        ..LAVAPIPE
    },
    Row {
        name: "demo-host",
        about: "the demo on the host driver",
        driver: Some(Driver::Host),
        steps: &[Step::Program("demo", Profile::Release, &["--driver", "host", "--json"])],
        count: Count::DemoLines,
        ..ROW
    },
    Row {
        name: "demo-vulkan",
        about: "the demo on lavapipe, and in agreement with the host driver",
        steps: &[Step::Program(
            "demo",
            Profile::Release,
            &["--driver", "host", "--driver", "vulkan", "--json"],
        )],
        count: Count::DemoLines,
        ..LAVAPIPE
    },
    Row {
        name: "dist",
        about: "the collected programs run elsewhere, with nothing of cargo's in the environment",
        steps: &[Step::Check(dist::check)],
        count: Count::Checks,
        ..ROW
    },
    Row {
        name: "breaks",
        about: "each invariant, broken by a patch to a copy of the tree, is noticed by its tests",
        steps: &[Step::Check(breaks::check)],
        count: Count::Checks,
        ..ROW
    },
];

/// What `cargo xtask test` was asked for.
#[derive(Debug, Default)]
pub(crate) struct TestOptions {
    pub(crate) drivers: Vec<String>,
    pub(crate) only: Vec<String>,
    pub(crate) require: Vec<String>,
    pub(crate) list: bool,
    pub(crate) install: bool,
}

/// A row that was selected.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) row: &'static Row,
    /// A skip is a failure.
    pub(crate) required: bool,
    /// Named on the command line, as hardware rows must be to run.
    pub(crate) asked: bool,
}

/// The rows that the options select, or what is wrong with the options.
pub(crate) fn plan(options: &TestOptions) -> Result<Vec<Planned>, String> {
    for name in &options.only {
        if !is_row(name) {
            return Err(format!("no row `{name}`; the rows are {}", row_names()));
        }
    }
    for name in &options.drivers {
        if !is_driver(name) {
            return Err(format!("no driver `{name}`; the drivers are {}", driver_names()));
        }
    }
    for name in &options.require {
        if name != "all" && !is_row(name) && !is_driver(name) {
            return Err(format!(
                "--require `{name}`: neither `all`, a driver ({}) nor a row ({})",
                driver_names(),
                row_names()
            ));
        }
    }

    let all = options.require.iter().any(|name| name == "all");
    let mut plan = Vec::new();
    for row in MATRIX {
        let named = |names: &[String]| names.iter().any(|name| name == row.name);
        let of_driver =
            |names: &[String]| row.driver.is_some_and(|d| names.iter().any(|n| n == d.name()));
        let required_by_name = named(&options.require) || of_driver(&options.require);
        let selected = (options.only.is_empty() || named(&options.only))
            && (options.drivers.is_empty() || of_driver(&options.drivers));
        if !selected {
            // Of a driver, the selected rows are required; a row by name must be among them.
            if named(&options.require) {
                return Err(left_out(row.name));
            }
            continue;
        }
        let installable = !row.hardware && row.needs.iter().all(|need| need.installable());
        plan.push(Planned {
            row,
            required: required_by_name || (all && installable),
            asked: required_by_name || named(&options.only) || of_driver(&options.drivers),
        });
    }
    if plan.is_empty() {
        return Err("no row is left: --only and --driver exclude each other".into());
    }
    for driver in Driver::ALL.iter().filter(|d| options.require.iter().any(|n| n == d.name())) {
        if !plan.iter().any(|planned| planned.row.driver == Some(*driver)) {
            return Err(left_out(driver.name()));
        }
    }
    Ok(plan)
}

/// What `--list` prints.
pub(crate) fn list(plan: &[Planned]) -> String {
    let width = plan.iter().map(|planned| planned.row.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Planned { row, required, .. } in plan {
        let driver = row.driver.map_or("-", Driver::name);
        // Writing to a String cannot fail.
        let _ = write!(text, "{:width$}  {driver:6}  {}", row.name, row.about);
        if row.hardware {
            text.push_str(" (hardware: only by name)");
        }
        if *required {
            text.push_str(" (required)");
        }
        text.push('\n');
    }
    text
}

fn left_out(name: &str) -> String {
    format!("--require asks for `{name}`, which --only or --driver leaves out")
}

fn is_row(name: &str) -> bool {
    MATRIX.iter().any(|row| row.name == name)
}

fn is_driver(name: &str) -> bool {
    Driver::ALL.iter().any(|driver| driver.name() == name)
}

fn row_names() -> String {
    MATRIX.iter().map(|row| row.name).collect::<Vec<_>>().join(", ")
}

fn driver_names() -> String {
    Driver::ALL.map(Driver::name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(drivers: &[&str], only: &[&str], require: &[&str]) -> TestOptions {
        let own = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        TestOptions {
            drivers: own(drivers),
            only: own(only),
            require: own(require),
            ..TestOptions::default()
        }
    }

    fn names(plan: &[Planned]) -> Vec<&str> {
        plan.iter().map(|planned| planned.row.name).collect()
    }

    #[test]
    fn names_are_unique_and_no_row_is_named_for_a_driver() {
        for (at, row) in MATRIX.iter().enumerate() {
            assert!(!row.name.is_empty() && !row.about.is_empty() && !row.steps.is_empty());
            assert!(MATRIX.iter().skip(at + 1).all(|other| other.name != row.name));
            assert!(!is_driver(row.name) && row.name != "all" && !row.name.contains(','));
        }
    }

    #[test]
    fn everything_without_options() {
        let plan = plan(&options(&[], &[], &[])).expect("a plan");
        assert_eq!(plan.len(), MATRIX.len());
        assert!(plan.iter().all(|planned| !planned.required && !planned.asked));
    }

    #[test]
    fn driver_keeps_only_its_rows() {
        let plan = plan(&options(&["host"], &[], &["all"])).expect("a plan");
        assert_eq!(
            names(&plan),
            [
                "conformance-host",
                "conformance-host-tiny",
                "conformance-host-poison",
                "conformance-host-two",
                "faults",
                "losses",
                "demo-host"
            ]
        );
        assert!(plan.iter().all(|planned| planned.required));
    }

    #[test]
    fn all_requires_what_install_can_satisfy() {
        let plan = plan(&options(&[], &[], &["all"])).expect("a plan");
        let left: Vec<_> = plan.iter().filter(|p| !p.required).map(|p| p.row.name).collect();
        // No package makes a GPU, another cargo, or a runtime of its compiler.
        assert_eq!(left, ["msrv", "tsan", "asan", "conformance-nvidia"]);
    }

    #[test]
    fn hardware_rows_by_name() {
        let asked = |options| {
            let plan = plan(&options).expect("a plan");
            let row = plan.iter().find(|p| p.row.hardware).expect("a hardware row");
            (row.asked, row.required)
        };
        assert_eq!(asked(options(&[], &[], &["all"])), (false, false));
        assert_eq!(asked(options(&[], &["conformance-nvidia"], &[])), (true, false));
        assert_eq!(asked(options(&["nvidia"], &[], &[])), (true, false));
        assert_eq!(asked(options(&[], &[], &["all", "nvidia"])), (true, true));
    }

    #[test]
    fn a_required_driver_is_its_selected_rows() {
        let only = ["fmt", "demo-vulkan"];
        let plan = plan(&options(&[], &only, &["vulkan"])).expect("a plan");
        let required: Vec<_> = plan.iter().map(|p| (p.row.name, p.required)).collect();
        assert_eq!(required, [("fmt", false), ("demo-vulkan", true)]);
    }

    #[test]
    fn wrong_names_list_the_known_ones() {
        for (options, say) in [
            (options(&["metal"], &[], &[]), "host, vulkan, nvidia"),
            (options(&[], &["units"], &[]), "clippy"),
            (options(&[], &[], &["units"]), "clippy"),
            (options(&["host"], &[], &["vulkan"]), "leaves out"),
            (options(&[], &["fmt"], &["unit"]), "leaves out"),
            (options(&["host"], &["fmt"], &[]), "no row is left"),
        ] {
            let error = plan(&options).expect_err("refused");
            assert!(error.contains(say), "{error}");
        }
    }

    #[test]
    fn list_has_a_line_for_each_row() {
        let text =
            list(&plan(&options(&[], &["fmt", "conformance-nvidia"], &["fmt"])).expect("a plan"));
        assert_eq!(text.lines().count(), 2);
        assert!(text.contains("(required)") && text.contains("(hardware: only by name)"));
    }
}
