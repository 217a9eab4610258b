//! The labels that every series of a VM carries.

use virtlens_model::snapshot::Vm;

/// Their names, before a family's own labels.
pub(crate) const IDENTITY_LABELS: [&str; 3] = ["namespace", "pod", "vm"];

/// The identity labels of one VM as text. Their encoding takes most of the time of a series,
/// so it is done once per scrape.
#[derive(Debug)]
pub(crate) struct Identity {
    /// `namespace="…",pod="…",vm="…",`: the labels before a family's own.
    text: String,
    /// Length of its part before `="…",` of the last label.
    last_name_end: usize,
}

impl Identity {
    pub(crate) fn of(vm: &Vm) -> Self {
        let [namespace, pod, name] = IDENTITY_LABELS;
        let mut text = String::new();
        // An unknown value becomes the empty label, which Prometheus treats as absent.
        push(&mut text, namespace, vm.namespace.as_deref().unwrap_or(""));
        push(&mut text, pod, vm.pod.as_deref().unwrap_or(""));
        let last_name_end = text.len() + name.len();
        push(&mut text, name, &vm.vm);
        Self {
            text,
            last_name_end,
        }
    }

    /// The labels before a family's own, with a comma at the end.
    pub(crate) fn before_own(&self) -> &str {
        &self.text
    }

    /// The same up to the name of the last label.
    pub(crate) fn up_to_last_name(&self) -> &str {
        self.text.get(..self.last_name_end).unwrap_or(&self.text)
    }
}

/// Appends a label and a comma.
pub(crate) fn push(text: &mut String, name: &str, value: &str) {
    text.push_str(name);
    text.push_str("=\"");
    // The escapes of both formats.
    for part in value.split_inclusive(['\\', '"', '\n']) {
        let rest = part.strip_suffix(['\\', '"', '\n']);
        text.push_str(rest.unwrap_or(part));
        match part.chars().next_back() {
            Some('\\') => text.push_str("\\\\"),
            Some('"') => text.push_str("\\\""),
            Some('\n') => text.push_str("\\n"),
            _ => {}
        }
    }
    text.push_str("\",");
}

#[cfg(test)]
mod tests {
    use super::push;

    fn label(value: &str) -> String {
        let mut text = String::new();
        push(&mut text, "vm", value);
        text
    }

    #[test]
    fn value_of_label_is_escaped() {
        assert_eq!(label("web-0"), r#"vm="web-0","#);
        assert_eq!(label(""), r#"vm="","#);
        assert_eq!(label("a\"b\\c\nd\n\n"), r#"vm="a\"b\\c\nd\n\n","#);
        assert_eq!(label("\\"), r#"vm="\\","#);
        assert_eq!(label("é\"é"), r#"vm="é\"é","#);
    }
}
