//! The structure of a value, and the column of each of its cells.

use std::sync::Arc;

use crate::dictionary::Dictionary;
use crate::flat::{END, Flat, MAP, SEQ, Token, has_cell};

/// A field of a struct, by its number among the fields of all structs. All values of a field,
/// also those of the sequences in it, are a column.
pub(crate) type Column = u32;

/// A structure. Most VMs of a node share one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) tokens: Vec<Token>,
    /// The column of each token that has a cell, in their order.
    pub(crate) columns: Vec<Column>,
}

impl Shape {
    /// The structure with these tokens; `None` if they are not a value.
    pub(crate) fn of(tokens: Vec<Token>, names: &Dictionary) -> Option<Self> {
        let mut columns = Vec::with_capacity(Flat::cells_of(&tokens));
        let mut open: Vec<Open> = Vec::new();
        for token in &tokens {
            let column = open.last().map_or(0, |open| open.column);
            match *token {
                END => {
                    open.pop_if(|open| open.fields.is_none())?;
                    complete(&mut open);
                }
                SEQ | MAP => open.push(Open {
                    column,
                    fields: None,
                }),
                token if has_cell(token) => {
                    columns.push(column);
                    complete(&mut open);
                }
                token => {
                    let fields = names.columns(token)?;
                    if fields.is_empty() {
                        complete(&mut open);
                    } else {
                        open.push(Open {
                            column: fields.start,
                            fields: Some(fields.end - fields.start),
                        });
                    }
                }
            }
        }
        open.is_empty().then_some(Self { tokens, columns })
    }
}

/// A struct or a sequence that has not ended.
struct Open {
    /// The column of the next value.
    column: Column,
    /// Number of values to come; `None` for a sequence, which ends with a token.
    fields: Option<u32>,
}

/// Goes on behind a value, which may be the last one of the structs around it.
fn complete(open: &mut Vec<Open>) {
    while let Some(Open {
        column,
        fields: Some(fields),
    }) = open.last_mut()
    {
        if *fields > 1 {
            (*column, *fields) = (*column + 1, *fields - 1);
            return;
        }
        open.pop();
    }
}

/// Number of structures that are remembered.
const RECENT: usize = 8;

/// The structures of the last values.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    recent: Vec<Arc<Shape>>,
    next: usize,
}

impl Shapes {
    pub(crate) fn clear(&mut self) {
        self.recent.clear();
    }

    /// The structure with these tokens; `None` if they are not a value.
    pub(crate) fn get(&mut self, tokens: &[Token], names: &Dictionary) -> Option<Arc<Shape>> {
        if let Some(known) = self.recent.iter().find(|known| known.tokens == tokens) {
            return Some(Arc::clone(known));
        }
        let shape = Arc::new(Shape::of(tokens.to_vec(), names)?);
        if self.recent.len() < RECENT {
            self.recent.push(Arc::clone(&shape));
        } else if let Some(oldest) = self.recent.get_mut(self.next % RECENT) {
            *oldest = Arc::clone(&shape);
            self.next += 1;
        }
        Some(shape)
    }
}

#[cfg(test)]
mod tests {
    use super::Shape;
    use crate::dictionary::Dictionary;
    use crate::flat::{END, MAP, SEQ, STRUCT, TEXT, UNSIGNED};

    /// A struct of two fields, one of three and one without fields.
    fn names() -> Dictionary {
        let mut names = Dictionary::default();
        for fields in [&[0, 1][..], &[2, 3, 4], &[]] {
            names.add_struct(fields).expect("they are few");
        }
        names
    }

    #[test]
    fn values_of_a_field_are_a_column() {
        let (outer, inner, empty) = (STRUCT, STRUCT + 1, STRUCT + 2);
        let one = [inner, UNSIGNED, empty, MAP, TEXT, UNSIGNED, END];
        let tokens = [&[outer, SEQ][..], &one, &one, &[END, UNSIGNED]].concat();
        let shape = Shape::of(tokens, &names()).expect("it is a value");
        assert_eq!(shape.columns, [2, 4, 4, 2, 4, 4, 1]);
    }

    #[test]
    fn broken_structures_are_refused() {
        let broken = [
            &[STRUCT, UNSIGNED][..],
            &[SEQ, UNSIGNED],
            &[STRUCT, END, UNSIGNED],
            &[END],
            &[STRUCT + 3],
        ];
        for tokens in broken {
            assert!(Shape::of(tokens.to_vec(), &names()).is_none(), "{tokens:?}");
        }
    }
}
