//! Tables as Helm prints them: cells padded to the width of their column, with tabs between columns.

/// The rows of a table as one text that ends with a line break.
///
/// As in Helm's table library, a column is as wide as its longest line; a cell of several lines is cut to that width as
/// if it were one line, and its remaining lines are printed one below the other.
pub(crate) fn table(rows: &[Vec<Cell>]) -> String {
    table_within(rows, 0)
}

/// The same, with columns of at most this many characters, unless it is 0.
pub(crate) fn table_within(rows: &[Vec<Cell>], most: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let lines = cells.flat_map(|cell| cell.text.split('\n'));
        lines.map(width).max().unwrap_or(0)
    };
    let bounded = |width: usize| if most > 0 { width.min(most) } else { width };
    let widths: Vec<usize> = (0..columns).map(|column| bounded(widest(column))).collect();
    rows.iter().map(|row| lines(row, &widths)).collect()
}

fn lines(row: &[Cell], widths: &[usize]) -> String {
    let cells: Vec<(Vec<String>, usize)> = row
        .iter()
        .zip(widths)
        .map(|(cell, &width)| (cell.lines(width), width))
        .collect();
    let height = cells.iter().map(|(lines, _)| lines.len()).max().unwrap_or(0);
    let line = |number: usize| {
        let parts = cells.iter().map(|(lines, width)| match lines.get(number) {
            Some(line) => line.clone(),
            None => " ".repeat(*width),
        });
        parts.collect::<Vec<_>>().join("\t") + "\n"
    };
    (0..height.max(1)).map(line).collect()
}

/// How many characters a text takes up on a terminal; line breaks and tabs do not count.
fn width(text: &str) -> usize {
    text.chars().filter(|c| !c.is_control()).count()
}

/// A text of exactly this width: padded, or cut and ended with three dots.
fn resized(text: &str, to: usize) -> String {
    let has = width(text);
    if has <= to {
        return format!("{text}{}", " ".repeat(to - has));
    }
    let (mut kept, mut taken) = (String::new(), 0);
    for c in text.chars() {
        kept.push(c);
        taken += usize::from(!c.is_control());
        if taken + 3 >= to {
            break;
        }
    }
    kept + "..."
}

/// A cell, and how a terminal shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    /// The text with its colour, which takes up no width.
    pub(crate) shown: Option<String>,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self {
            text: text.into(),
            shown: None,
        }
    }
}

impl Cell {
    fn lines(&self, width: usize) -> Vec<String> {
        if let Some(shown) = &self.shown {
            let padding = " ".repeat(width.saturating_sub(self::width(&self.text)));
            return vec![format!("{shown}{padding}")];
        }
        let whole = resized(&self.text, width);
        whole.split('\n').map(|line| resized(line, width)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            vec!["NAME".into(), "REVISION".into()],
            vec!["w".into(), "1".into()],
        ];
        assert_eq!(table(&rows), "NAME\tREVISION\nw   \t1       \n");
        assert_eq!(table(&[]), "");
    }

    #[test]
    fn a_cell_of_several_lines_is_cut_to_its_longest_one() {
        let rows = [
            vec!["REVISION".into(), "DESCRIPTION".into()],
            vec!["1".into(), "Install complete".into()],
            vec!["2".into(), "failed: 1 error:\n\t* it is invalid\n\n".into()],
        ];
        assert_eq!(
            table(&rows),
            "REVISION\tDESCRIPTION     \n1       \tInstall complete\n2       \tfailed: 1 err...\n"
        );
        let rows = [
            vec!["A".into(), "a line that is longer than both".into()],
            vec!["1".into(), "one:\n\ttwo".into()],
        ];
        let padded = |text: &str| format!("{text}{}", " ".repeat(31 - width(text)));
        let expected = format!(
            "A\t{}\n1\t{}\n \t{}\n",
            padded("a line that is longer than both"),
            padded("one:"),
            padded("\ttwo")
        );
        assert_eq!(table(&rows), expected);
    }
}
