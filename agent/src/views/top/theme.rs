//! Colours and markers; every marker is readable without colours.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// Drawing style.
#[derive(Debug, Clone, Copy)]
pub struct Theme {
    /// Whether colours are used.
    pub color: bool,
    /// Whether only ASCII characters are used.
    pub ascii: bool,
}

const UNICODE_BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII_BARS: [char; 8] = ['.', ':', '-', '=', '+', '*', '%', '#'];

impl Theme {
    /// Headers of columns and sections.
    pub fn head(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Less important text.
    pub fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// The row of the cursor.
    pub fn cursor(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Warnings.
    pub fn warning(self) -> Style {
        self.colored(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    /// Alarms.
    pub fn alarm(self) -> Style {
        self.colored(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn colored(self, color: Color) -> Style {
        if self.color {
            Style::new().fg(color)
        } else {
            Style::new()
        }
    }

    /// Colour of a share, by its distance from 1.
    pub fn load(self, share: Option<f64>) -> Style {
        match share {
            Some(share) if share >= 0.9 => self.alarm(),
            Some(share) if share >= 0.7 => self.warning(),
            _ => Style::new(),
        }
    }

    /// A row of bars of one character each, with heights relative to `most`. Unknown and
    /// zero values are spaces.
    pub fn bars(self, values: &[Option<f64>], most: f64) -> String {
        let bars = if self.ascii { ASCII_BARS } else { UNICODE_BARS };
        let bar = |value: &Option<f64>| {
            let share = value
                .map(|value| value / most)
                .filter(|share| *share > 0.005);
            share.map_or(' ', |share| {
                let steps = (0..8_u8).take_while(|step| share * 8.0 > f64::from(*step));
                bars[steps.count().clamp(1, 8) - 1]
            })
        };
        values.iter().map(bar).collect()
    }

    /// Replaces all characters outside ASCII in ASCII mode, since names may contain them.
    pub fn readable(self, mut line: Line<'_>) -> Line<'_> {
        for span in line.spans.iter_mut().filter(|_| self.ascii) {
            if !span.content.is_ascii() {
                let ascii = |letter| match letter {
                    '…' => '~',
                    letter if letter.is_ascii() => letter,
                    _ => '?',
                };
                span.content = span.content.chars().map(ascii).collect::<String>().into();
            }
        }
        line
    }

    /// Marker of the selected row or column.
    pub fn marker(self, is_meant: bool) -> Span<'static> {
        match (is_meant, self.ascii) {
            (false, _) => Span::raw(" "),
            (true, false) => Span::raw("▸"),
            (true, true) => Span::raw(">"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Theme;

    #[test]
    fn bars_are_proportional_to_values() {
        let theme = |ascii| Theme {
            color: false,
            ascii,
        };
        let values = [None, Some(0.0), Some(0.1), Some(0.5), Some(1.0), Some(7.0)];
        assert_eq!(theme(false).bars(&values, 1.0), "  ▁▄██");
        assert_eq!(theme(true).bars(&values, 1.0), "  .=##");
        assert_eq!(theme(true).bars(&[Some(1.0)], 0.0), "#");
    }
}
