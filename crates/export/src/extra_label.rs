//! Labels that a user adds to all series.

use std::str::FromStr;

use crate::families::families;
use crate::identity::push;

/// Longest value, bytes.
const MAX_VALUE: usize = 1024;

/// A label for all series, as in `instance=node-a:9877`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtraLabel {
    name: String,
    value: String,
}

impl ExtraLabel {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Appends the label and a comma.
    pub(crate) fn push(&self, text: &mut String) {
        push(text, &self.name, &self.value);
    }
}

impl FromStr for ExtraLabel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pair = text.split_once('=');
        let (name, value) =
            pair.ok_or_else(|| format!("invalid label {text:?} (expected NAME=VALUE)"))?;
        let is_word = |char: char| char.is_ascii_alphanumeric() || char == '_';
        let starts_well = name.starts_with(|first: char| is_word(first) && !first.is_ascii_digit());
        // Prometheus keeps names with two underscores for itself.
        if !starts_well || !name.chars().all(is_word) || name.starts_with("__") {
            return Err(format!("invalid label name {name:?}"));
        }
        let is_used = families().any(|family| family.labels().contains(&name));
        // `le` is the label of histograms.
        if is_used || name == "le" {
            return Err(format!("the metrics have a label {name}"));
        }
        if value.len() > MAX_VALUE {
            return Err(format!(
                "the value of label {name} is longer than {MAX_VALUE} bytes"
            ));
        }
        Ok(Self {
            name: name.to_owned(),
            value: value.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::ExtraLabel;

    #[test]
    fn label_is_escaped_like_others() {
        let label: ExtraLabel = "site=a=\"b\"".parse().expect("it is valid");
        let mut text = String::new();
        label.push(&mut text);
        assert_eq!(text, r#"site="a=\"b\"","#);
    }

    #[test]
    fn label_without_value_with_a_bad_or_used_name_is_refused() {
        let long = format!("site={}", "x".repeat(1025));
        for wrong in [
            "",
            "site",
            "=a",
            "1a=b",
            "a-b=c",
            "__name__=x",
            "é=x",
            "vm=x",
            "role=x",
            "le=1",
            &long,
        ] {
            assert!(wrong.parse::<ExtraLabel>().is_err(), "{wrong}");
        }
        for right in ["instance=node-a:9877", "job=", "_a1=b"] {
            assert!(right.parse::<ExtraLabel>().is_ok(), "{right}");
        }
    }
}
