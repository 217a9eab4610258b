//! Scheduling classes.

use serde::{Deserialize, Serialize};

/// The scheduling class of a thread, by its policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SchedClass {
    /// `SCHED_OTHER`, `SCHED_BATCH` and `SCHED_IDLE`: the only class with CPU limits.
    Fair,
    /// `SCHED_FIFO` and `SCHED_RR`.
    Realtime,
    /// `SCHED_DEADLINE`.
    Deadline,
    /// `SCHED_EXT`, since v6.12. A scheduler that takes all threads of the fair class
    /// leaves their policies as they are.
    Ext,
}

impl SchedClass {
    /// Name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fair => "fair",
            Self::Realtime => "realtime",
            Self::Deadline => "deadline",
            Self::Ext => "ext",
        }
    }

    /// The class of a policy (`include/uapi/linux/sched.h`); `None` for one that no kernel
    /// up to v7.2 has.
    pub fn of_policy(policy: u32) -> Option<Self> {
        match policy {
            0 | 3 | 5 => Some(Self::Fair),
            1 | 2 => Some(Self::Realtime),
            6 => Some(Self::Deadline),
            7 => Some(Self::Ext),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SchedClass;

    #[test]
    fn name_is_that_of_json() {
        for policy in [0, 1, 6, 7] {
            let class = SchedClass::of_policy(policy).expect("a class");
            let json = serde_json::to_value(class).expect("a text");
            assert_eq!(json, class.name());
        }
    }
}
