//! The first part: kernels on two crops of a grid that was set on the host, then the whole grid read.

use std::error::Error;
use std::io::Write;

use hedgerow::driver::ComputeDriver;
use hedgerow::{Shape, Tree};

use super::kernels;
use super::report::Line;

/// What the host set every cell to.
const UNTOUCHED: i32 = -1;

pub(super) fn run<D: ComputeDriver>(gpu: &D, out: &mut dyn Write) -> Result<Line, Box<dyn Error>> {
    let fill = kernels::FILL.load(gpu)?;
    let mut cells = [UNTOUCHED; 20 * 20];
    let tree = Tree::over(&mut cells, Shape::packed([20, 20]), gpu)?;
    writeln!(out, "The tree before:\n{tree}\n")?;

    let grid = tree.root();
    let block = grid.crop([2..10, 4..8])?;
    let column = grid.crop([0..1, 2..10])?;
    fill.launch((block.as_overwrite(),), 1)?;
    fill.launch((column.as_overwrite(),), 2)?;
    writeln!(out, "The tree after two kernels, each on a crop:\n{tree}\n")?;

    let image = grid.read()?;
    writeln!(out, "The grid, read on the host (. is a cell that no kernel wrote):")?;
    let (mut right, mut written) = (true, 0);
    for y in 0..20 {
        for x in 0..20 {
            let expected = match (x, y) {
                (2..10, 4..8) => x * 100 + y + 10_000,
                (0, 2..10) => x * 100 + y + 20_000,
                _ => UNTOUCHED,
            };
            right &= image[[x, y]] == expected;
            match image[[x, y]] {
                UNTOUCHED => write!(out, "     .")?,
                value => {
                    write!(out, " {value:5}")?;
                    written += 1;
                }
            }
        }
        writeln!(out)?;
    }
    writeln!(out, "{written} cells changed, {} untouched", 20 * 20 - written)?;
    writeln!(out, "\nThe tree after the read:\n{tree}\n")?;

    let moved = tree.counters();
    tree.check()?;
    Ok(Line {
        ok: right && (moved.bytes_up, moved.bytes_down, moved.bytes_widened) == (0, 160, 0),
        bytes_up: Some(moved.bytes_up),
        bytes_down: Some(moved.bytes_down),
        // Up, since the first kernel writes a part of the buffer; and down, since the host reads it.
        bytes_whole_buffer: Some(2 * (20 * 20 * 4)),
        ..Line::default()
    })
}

#[cfg(test)]
mod tests {
    use hedgerow_host::Host;

    use super::*;

    #[test]
    fn right_on_the_host() {
        let mut text = Vec::new();
        let line = run(&Host::new(), &mut text).expect("it runs");
        assert!(line.ok, "{line:?}");
        let text = String::from_utf8(text).expect("it is text");
        assert!(text.contains("40 cells changed, 360 untouched"), "{text}");
    }
}
