//! A tree, drawn: every node with its region, and what is fresh where.

use core::fmt;

use super::State;
use crate::coherence::Pick;
use crate::region::Region;

/// A tree's picture, for `Display`.
#[derive(Debug)]
pub struct Drawing<'a, 'b>(core::cell::RefCell<&'a mut State<'b>>);

impl<'a, 'b> Drawing<'a, 'b> {
    /// A picture of `state` as it is now.
    pub fn of(state: &'a mut State<'b>) -> Self {
        Self(core::cell::RefCell::new(state))
    }
}

/// Rows and columns of a picture's map, at most.
const MAP: (i64, i64) = (24, 48);

impl fmt::Display for Drawing<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(mut state) = self.0.try_borrow_mut() else { return Err(fmt::Error) };
        let root = *state.root();
        write!(f, "root {root}")?;
        let counts = state.header.grid.cells();
        writeln!(f, ", {counts} cell{}", if counts == 1 { "" } else { "s" })?;

        let mut result = Ok(());
        state.for_each_node(&mut |depth, region| {
            if result.is_ok() {
                result = writeln!(f, "{:indent$}+- {region}", "", indent = 3 * (depth - 1));
            }
        });
        result?;

        let places = 1 + state.devices.len();
        for place in 0..places {
            let location = super::Location::of_place(place);
            let shared = place == 1 && state.setup().shared;
            if shared {
                writeln!(f, "{location}: shares the host's bytes")?;
                continue;
            }
            if place == 0 && !state.setup().has_host {
                writeln!(f, "host: no storage")?;
                continue;
            }
            let lost = place > 0 && state.devices.get(place - 1).is_some_and(|d| d.lost);
            write!(f, "{location}: {}fresh on", if lost { "lost, " } else { "" })?;
            let plane = state.plane(place);
            let map = state.map();
            let mut none = true;
            let mut result = Ok(());
            if !root.is_empty() {
                let pick = Pick { stale: 0, fresh: crate::coherence::plane_bit(plane) };
                map.boxes(&root, pick, &mut Default::default(), &mut |piece| {
                    none = false;
                    result = write!(f, " {piece}");
                    result.is_ok()
                });
            }
            result?;
            writeln!(f, "{}", if none { " nothing" } else { "" })?;
        }
        draw_map(&mut state, &root, f)
    }
}

/// The first two axes as characters: `H` host only, `0`.. one device only, `=` several, `.` nobody,
/// `x` lost; `#` where a character stands for several states.
fn draw_map(state: &mut State<'_>, root: &Region, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if root.is_empty() || root.rank() == 0 {
        return Ok(());
    }
    let rows = if root.rank() > 1 { root.extent(1) } else { 1 };
    let (rows, columns) = (i64::from(rows), i64::from(root.extent(0)));
    let (shown_rows, shown_columns) = (rows.min(MAP.0), columns.min(MAP.1));
    for row in 0..shown_rows {
        f.write_str("  ")?;
        for column in 0..shown_columns {
            let mut spot = *root;
            let part = |n: i64, of: i64, shown: i64, lo: i32| {
                let at = |n: i64| (n * of / shown + i64::from(lo)) as i32;
                (at(n), at(n + 1))
            };
            let (lo, hi) = part(column, columns, shown_columns, root.lo(0));
            spot.set(0, lo, hi);
            if root.rank() > 1 {
                let (lo, hi) = part(row, rows, shown_rows, root.lo(1));
                spot.set(1, lo, hi);
            }
            for axis in 2..root.rank() {
                spot.set(axis, root.lo(axis), root.lo(axis) + 1);
            }
            write!(f, "{}", sign(state, &spot))?;
        }
        writeln!(f)?;
    }
    f.write_str("  H host only, 0.. that device only, = several, . nobody, x lost, # mixed")?;
    if root.rank() > 2 {
        f.write_str("; first slice of the outer axes")?;
    }
    Ok(())
}

fn sign(state: &mut State<'_>, spot: &Region) -> char {
    let shared = state.setup().shared;
    let map = state.map();
    let mut only = None;
    let mut several = 0;
    for plane in 0..map.places() {
        let fresh = Pick { stale: 0, fresh: crate::coherence::plane_bit(plane) };
        match (map.touches(spot, fresh), map.is_fresh(plane, spot)) {
            (false, _) => {}
            (true, true) => {
                several += 1;
                only = Some(plane);
            }
            (true, false) => return '#',
        }
    }
    let lost = map.touches(spot, Pick::stale(map.lost_plane()));
    match (several, only) {
        (1, Some(0)) => {
            if shared {
                '='
            } else {
                'H'
            }
        }
        (1, Some(plane)) => char::from_digit(plane as u32 - 1, 10).unwrap_or('D'),
        (0, _) => {
            if lost {
                'x'
            } else {
                '.'
            }
        }
        _ => '=',
    }
}
