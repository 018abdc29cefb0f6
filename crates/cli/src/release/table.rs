//! Tables as Helm prints them: every cell as wide as its column, a tab between columns.

/// The rows of a table, in one text that ends with a line break.
pub(crate) fn table(rows: &[Vec<Cell>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.text.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<Cell>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| cell.padded(*width));
        cells.collect::<Vec<_>>().join("\t")
    };
    rows.iter().map(|row| line(row) + "\n").collect()
}

/// A cell, and how it is shown on a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    /// The text with its colour, which takes no room.
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
    fn padded(&self, width: usize) -> String {
        let padding = " ".repeat(width.saturating_sub(self.text.chars().count()));
        format!("{}{padding}", self.shown.as_deref().unwrap_or(&self.text))
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
}
