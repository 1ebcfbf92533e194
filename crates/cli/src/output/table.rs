//! Tables with aligned columns, which fit the terminal.

use crate::output::width::{shortened, width};

/// A column that has to give room keeps at least this many columns of the terminal.
const NARROWEST: usize = 8;
/// Between two columns.
pub(crate) const GAP: &str = "  ";

/// The lines of a table; the first has the titles. What does not fit into `columns` of a terminal
/// is shortened, the widest columns first.
pub(super) fn lines<const N: usize>(
    titles: [&str; N],
    rows: &[[String; N]],
    columns: Option<usize>,
) -> Vec<String> {
    let mut widths = titles.map(width);
    for row in rows {
        for (widest, cell) in widths.iter_mut().zip(row) {
            *widest = (*widest).max(width(cell));
        }
    }
    if let Some(columns) = columns {
        let gaps = GAP.len() * N.saturating_sub(1);
        fit(&mut widths, &titles, columns.saturating_sub(gaps));
    }
    let first = line(titles.iter().copied(), &widths);
    let rest = rows.iter().map(|row| {
        let cells = row.iter().map(String::as_str);
        line(cells, &widths)
    });
    std::iter::once(first).chain(rest).collect()
}

/// The text of a cell: a dash where there is nothing to show.
pub(crate) fn known(shown: Option<impl std::fmt::Display>) -> String {
    shown.map_or("-".to_owned(), |shown| shown.to_string())
}

/// Takes from the widest columns until all fit, or none can be narrower.
pub(crate) fn fit(widths: &mut [usize], titles: &[&str], room: usize) {
    loop {
        let excess = widths.iter().sum::<usize>().saturating_sub(room);
        if excess == 0 {
            return;
        }
        let least = titles.iter().map(|title| width(title).max(NARROWEST));
        let wide = widths.iter().zip(least).enumerate();
        let wide = wide.filter(|(_, (width, least))| **width > *least);
        let Some((at, (&widest, least))) = wide.max_by_key(|(_, (width, _))| **width) else {
            return;
        };
        let others = widths.iter().enumerate().filter(|(other, _)| *other != at);
        let next = others.map(|(_, width)| *width).max().unwrap_or_default();
        // Down to the next widest, then in turns.
        let step = widest.saturating_sub(next).max(1).min(excess);
        if let Some(width) = widths.get_mut(at) {
            *width = widest.saturating_sub(step).max(least);
        }
    }
}

fn line<'a>(cells: impl Iterator<Item = &'a str>, widths: &[usize]) -> String {
    let mut line = String::new();
    for (cell, columns) in cells.zip(widths) {
        let cell = shortened(cell, *columns);
        let padding = columns.saturating_sub(width(&cell));
        line.push_str(&cell);
        line.push_str(&" ".repeat(padding));
        line.push_str(GAP);
    }
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[[&str; 3]]) -> Vec<[String; 3]> {
        rows.iter().map(|row| row.map(str::to_owned)).collect()
    }

    const TITLES: [&str; 3] = ["PATH", "HOLDER", "N"];

    #[test]
    fn columns_are_aligned_and_lines_end_with_their_text() {
        let rows = rows(&[["/a", "zk1", "1"], ["/long", "\u{6c34}", ""]]);
        let expected = ["PATH   HOLDER  N", "/a     zk1     1", "/long  \u{6c34}"];
        assert_eq!(lines(TITLES, &rows, None), expected);
    }

    #[test]
    fn a_table_fits_the_terminal_at_the_cost_of_the_widest_column() {
        let long = "/very/long/path/of/a/lock";
        let rows = rows(&[[long, "host-12", "1"]]);
        let expected = ["PATH            HOLDER   N", "/very/long/pa~  host-12  1"];
        assert_eq!(lines(TITLES, &rows, Some(26)), expected);
        // No column vanishes: then the terminal wraps.
        let narrow = lines(TITLES, &rows, Some(3));
        assert_eq!(narrow[1], "/very/l~  host-12  1");
        let huge = vec![["x".repeat(1 << 20), "y".repeat(1 << 20), "z".to_owned()]];
        for line in lines(TITLES, &huge, Some(80)) {
            assert!(width(&line) <= 80, "{}", width(&line));
        }
    }
}
