//! Sums by role.

use crate::vocab::Role;

/// Number of sums that a [`Ledger`](super::ledger::Ledger) keeps by role: one per role, and
/// one for threads without a role.
pub const SUMS: usize = Role::ALL.len() + 1;

/// The index of a role's sum; `None` is unattributed.
pub fn sum_index(role: Option<Role>) -> usize {
    role.map_or(SUMS - 1, |role| role as usize)
}

#[cfg(test)]
mod tests {
    use super::SUMS;
    use crate::account::sums::sum_index;
    use crate::vocab::Role;

    #[test]
    fn sums_are_in_the_order_of_the_roles() {
        let indices = Role::ALL.map(|role| sum_index(Some(role)));
        assert!(indices.into_iter().eq(0..SUMS - 1));
        assert_eq!(sum_index(None), SUMS - 1);
    }
}
