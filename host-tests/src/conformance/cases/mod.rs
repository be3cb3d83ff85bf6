//! The cases, by kind.

#![allow(clippy::single_range_in_vec_init, reason = "a crop of one axis is an array of one range")]

mod dirty;
mod faults;
mod guards;
mod invariants;
mod launches;
mod layouts;
mod limits;
mod programs;
mod reports;
mod views;
mod ways;

use hedgerow::capacity::Capacity;

use super::lab::{Bed, Hardware, Lab, Skip, Storage, Value};

type Run<H, C> = Box<dyn Fn(&Lab<'_, H, C>) -> Result<(), Skip> + Send + Sync>;

/// One case of the suite.
pub(super) struct Case<H: Hardware, C: Capacity> {
    pub(super) name: &'static str,
    /// The kind of storage that it is about, if it is about one.
    pub(super) only: Option<Storage>,
    pub(super) run: Run<H, C>,
}

/// What a case returns: nothing, or why it does not apply.
trait Verdict {
    fn verdict(self) -> Result<(), Skip>;
}

impl Verdict for () {
    fn verdict(self) -> Result<(), Skip> {
        Ok(())
    }
}

impl Verdict for Result<(), Skip> {
    fn verdict(self) -> Self {
        self
    }
}

/// Lists a module's cases: those for both kinds of storage, and those for one.
macro_rules! cases {
    ($($only:ident: $($name:ident),+ $(,)?);+ $(;)?) => {
        pub(super) fn cases<H: Hardware, C: Capacity>() -> Vec<super::Case<H, C>> {
            use super::Verdict;
            vec![$($(super::Case {
                name: stringify!($name),
                only: super::cases!(@ $only),
                run: Box::new(|lab| $name::<H, C>(lab).verdict()),
            }),+),+]
        }
    };
    (@ both) => { None };
    (@ borrowed) => { Some(super::Storage::Borrowed) };
    (@ owned) => { Some(super::Storage::Owned) };
}
use cases;

pub(super) fn all<H: Hardware, C: Capacity>() -> Vec<Case<H, C>> {
    let mut all = reports::cases();
    all.extend(invariants::cases());
    all.extend(views::cases());
    all.extend(dirty::cases());
    all.extend(layouts::cases());
    all.extend(guards::cases());
    all.extend(launches::cases());
    all.extend(limits::cases());
    all.extend(ways::cases());
    all.extend(faults::cases());
    all.extend(programs::cases());
    for name in ONE_DEVICE.iter().chain(NOT_FAILED).chain(NOT_LOST).flat_map(|(_, names)| *names) {
        assert!(all.iter().any(|case| case.name == *name), "no case {name}");
    }
    all
}

/// Why a case is of no use on trees of two devices, for those that are about one by their nature.
pub(super) fn one_device(name: &str) -> Option<&'static str> {
    ONE_DEVICE.iter().find(|(_, names)| names.contains(&name)).map(|(reason, _)| *reason)
}

static ONE_DEVICE: &[(&str, &[&str])] = &[(
    "it counts boxes, and what passes the host is one box planned and two moved",
    &["i11_plans_say_what_then_moves"],
)];

/// Why no call of a case is failed in the rows that do so.
pub(super) fn not_failed(name: &str, by_loss: bool) -> Option<&'static str> {
    let lists = NOT_FAILED.iter().chain(NOT_LOST.iter().filter(|_| by_loss));
    lists.into_iter().find(|(_, names)| names.contains(&name)).map(|(reason, _)| *reason)
}

/// The same for losses of a device.
static NOT_LOST: &[(&str, &[&str])] = &[
    ("a forgotten guard keeps the root from work that goes on", &["guards_forgotten_cost_a_slot"]),
    ("its guards write after they are opened", &["i09_disjoint_guards_live_at_once"]),
    ("its second device is its own", &["launches_on_another_driver_are_refused"]),
    (
        "what a window wrote home before the loss is not in the model",
        &["ways_detached_windows_write_home_when_closed", "ways_detached_readers_share_their_halo"],
    ),
    ("poison meets a loss that its call does not", &["ways_poison_changes_no_result"]),
];

static NOT_FAILED: &[(&str, &[&str])] = &[
    (
        "it injects failures by itself",
        &[
            "p09_every_call_fails_once",
            "i06_state_changes_only_on_acceptance",
            "launches_with_a_failing_second_tree",
            "ways_make_room_by_evicting_another_tree",
            "faults_out_of_memory_at_every_call",
            "faults_timeout_at_every_call",
            "faults_half_a_copy_list_then_failure",
            "faults_half_a_copy_list_then_timeout",
            "faults_loss_at_every_call",
            "faults_half_a_copy_list_then_loss",
            "faults_no_room_for_the_root_loses_nothing",
            "faults_loss_of_one_device_of_two",
            "faults_after_a_loss_the_host_goes_on",
            "faults_drop_reports_what_it_could_not_write_back",
            "faults_close_gives_the_tree_back",
            "faults_close_after_a_loss",
            "faults_no_room_for_owned_storage",
            "faults_a_failed_overwrite_leaves_nothing_behind",
            "programs_with_failures",
            "programs_with_a_loss",
        ],
    ),
    (
        "threads decide which call is which",
        &[
            "guards_on_two_threads_write_disjoint_rows",
            "guards_on_threads_count_to_the_sum",
            "launches_from_two_threads_on_disjoint_crops",
            "launches_from_two_threads_on_two_trees",
            "launches_of_two_trees_in_either_order",
        ],
    ),
    (
        "the tests of random programs fail their calls",
        &[
            "programs_of_rank_one",
            "programs_of_rank_two",
            "programs_of_rank_three",
            "programs_of_the_highest_rank",
            "programs_in_padded_and_flipped_roots",
            "programs_on_bytes",
            "programs_on_three_byte_elements",
            "programs_on_two_devices",
        ],
    ),
    (
        "it drops a tree, which can report a failure and not return it",
        &["i07_nothing_dies_silently", "faults_drop_writes_back"],
    ),
    ("it counts boxes, and a call made again moves them again", &["i11_plans_say_what_then_moves"]),
    (
        "it is about what the driver itself answers",
        &[
            "launches_of_kernels_without_a_form",
            "launches_that_refuse_change_nothing",
            "limits_a_root_larger_than_an_allocation",
            "p10_wrapped_memory_comes_back_when_no_view_lives",
        ],
    ),
];

/// Gives every element a value on the host, where the storage starts without.
fn start<T: Value, H: Hardware, C: Capacity>(bed: &Bed<'_, '_, T, H, C>) {
    if bed.model().value(0).is_none() {
        bed.write(&bed.root(), 30);
    }
}

impl<H: Hardware, C: Capacity> Lab<'_, H, C> {
    /// Bytes that a copy moves: none where host and device share them.
    fn bytes(&self, bytes: u64) -> u64 {
        if self.is_shared() { 0 } else { bytes }
    }
}
