//! Loads as many parts of an object as the kernel accepts: if it rejects the whole
//! object, all parts except those at fault, each with a separate reason. Pure except for
//! the function that loads.

use std::io;

use crate::Error;
use crate::plan::{Feature, Plan};

/// Result of [`add_each`].
#[derive(Debug)]
pub(crate) struct Settled<P, L> {
    /// All accepted parts, loaded together.
    pub(crate) loaded: L,
    /// The accepted parts, in order.
    pub(crate) taken: Vec<P>,
    /// The rejected parts, and the reasons.
    pub(crate) refused: Vec<(P, io::Error)>,
}

/// Adds each of `parts` to the accepted parts, unless the kernel rejects it: then this
/// part is at fault, because the parts before it were accepted. `load` loads all parts
/// that it is given.
///
/// # Errors
/// An error of `load` that is not a rejection.
pub(crate) fn add_each<P: Copy, L>(
    mut settled: Settled<P, L>,
    parts: &[P],
    mut load: impl FnMut(&[P]) -> Result<L, Error>,
) -> Result<Settled<P, L>, Error> {
    for part in parts {
        settled.taken.push(*part);
        match load(&settled.taken) {
            Ok(loaded) => settled.loaded = loaded,
            Err(Error::Load(cause)) => {
                settled.taken.pop();
                settled.refused.push((*part, cause));
            }
            Err(other) => return Err(other),
        }
    }
    Ok(settled)
}

/// Loads `plan`. If the kernel rejects it, loads as much of it as the kernel accepts:
/// another variant if the task pass itself is rejected, and without the features at
/// fault.
///
/// [`Error::Load`] with the last rejection of the task pass, or an error that is not a
/// rejection.
pub(crate) fn settle<L>(
    plan: &Plan,
    mut load: impl FnMut(&Plan) -> Result<L, Error>,
) -> Result<(Plan, L), Error> {
    let mut cause = match load(plan) {
        Ok(loaded) => return Ok((plan.clone(), loaded)),
        Err(Error::Load(cause)) => cause,
        Err(other) => return Err(other),
    };
    for way in ways(plan) {
        let only = [Feature::TaskPass];
        match load(&way.only(&only)) {
            Ok(loaded) => {
                report(plan, &way, &cause);
                return add_features(&way, loaded, load);
            }
            Err(Error::Load(refusal)) => cause = refusal,
            Err(other) => return Err(other),
        }
    }
    Err(Error::Load(cause))
}

/// Returns the variants of the task pass, the best first.
fn ways(plan: &Plan) -> Vec<Plan> {
    let mut ways = vec![plan.clone()];
    let mut lesser = plan.clone();
    if lesser.walks {
        lesser.walks = false;
        ways.push(lesser.clone());
    }
    if lesser.task_storage {
        lesser.task_storage = false;
        ways.push(lesser);
    }
    ways
}

fn report(plan: &Plan, way: &Plan, cause: &io::Error) {
    if plan.task_storage && !way.task_storage {
        tracing::warn!(%cause, "the kernel rejected task storage; using a hash map for thread states");
    } else if plan.walks && !way.walks {
        tracing::warn!(
            %cause,
            "the kernel rejected the program that walks all tasks; using a task iterator, each \
             pass takes longer"
        );
    }
}

fn add_features<L>(
    way: &Plan,
    loaded: L,
    mut load: impl FnMut(&Plan) -> Result<L, Error>,
) -> Result<(Plan, L), Error> {
    let others = way.features.iter().copied();
    let others: Vec<_> = others.filter(|one| *one != Feature::TaskPass).collect();
    let settled = Settled {
        loaded,
        taken: vec![Feature::TaskPass],
        refused: Vec::new(),
    };
    let settled = add_each(settled, &others, |features| load(&way.only(features)))?;
    let plan = settled.refused.into_iter();
    let plan = plan.fold(way.clone(), |plan, (feature, cause)| {
        plan.without(feature, format!("rejected by the kernel: {cause}"))
    });
    Ok((plan, settled.loaded))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::settle;
    use crate::Error;
    use crate::facts::KernelFacts;
    use crate::plan::{Feature, Plan, plan};

    fn whole() -> Plan {
        plan(&KernelFacts {
            may_load: true,
            btf: true,
            preempt_notifiers: true,
            kvm_types: true,
            task_iter: true,
            task_storage: true,
            host_pids: true,
            possible_cpus: 2,
            fentry: true,
            task_walk: true,
            throttle_functions: true,
            ..KernelFacts::default()
        })
    }

    /// A kernel that rejects these programs, and, without `storage`, programs that use
    /// task storage.
    fn kernel(refused: &[&str], storage: bool) -> impl FnMut(&Plan) -> Result<Vec<String>, Error> {
        let refused: Vec<String> = refused.iter().map(|name| (*name).to_owned()).collect();
        move |plan| {
            if plan.task_storage && !storage {
                return Err(Error::Load(io::Error::other("unknown func")));
            }
            let programs: Vec<String> = plan.programs().map(str::to_owned).collect();
            match programs.iter().find(|name| refused.contains(name)) {
                Some(name) => Err(Error::Load(io::Error::other(format!("{name}: no")))),
                None => Ok(programs),
            }
        }
    }

    #[test]
    fn refused_program_costs_its_feature_alone() {
        for feature in Feature::ALL.into_iter().skip(1) {
            for program in whole().programs_of(feature) {
                let (plan, loaded) = settle(&whole(), kernel(&[program], true)).expect(program);
                let reason = format!("rejected by the kernel: {program}: no");
                assert_eq!(plan.left_out, [(feature, reason)], "{program}");
                assert_eq!(
                    plan.features,
                    whole().without(feature, String::new()).features
                );
                assert!(plan.walks && plan.task_storage, "{program}");
                assert_eq!(loaded, plan.programs().collect::<Vec<_>>(), "{program}");
            }
        }
    }

    #[test]
    fn several_refused_programs_cost_their_features_with_own_reasons() {
        let (plan, _) = settle(&whole(), kernel(&["on_free", "on_madvise"], true)).expect("a pass");
        let reasons: Vec<_> = plan.left_out.iter().map(|(_, reason)| &**reason).collect();
        let expected =
            ["on_free", "on_madvise"].map(|name| format!("rejected by the kernel: {name}: no"));
        assert_eq!(reasons, expected);
    }

    #[test]
    fn refused_walk_costs_the_walk_alone() {
        let (plan, loaded) = settle(&whole(), kernel(&["walk_tasks"], true)).expect("a pass");
        assert_eq!((plan.walks, plan.task_storage), (false, true));
        assert_eq!(plan.features, Feature::ALL);
        assert!(loaded.iter().any(|name| name == "sample_tasks"));
    }

    #[test]
    fn refused_task_storage_costs_no_feature() {
        let (plan, _) = settle(&whole(), kernel(&[], false)).expect("a pass");
        assert_eq!((plan.walks, plan.task_storage), (false, false));
        assert_eq!(plan.features, Feature::ALL);
    }

    #[test]
    fn refused_task_pass_is_an_error_with_its_reason() {
        let refused = kernel(&["walk_tasks", "sample_tasks"], true);
        let error = settle(&whole(), refused).expect_err("no pass");
        assert!(error.to_string().contains("sample_tasks: no"), "{error}");
    }

    #[test]
    fn other_error_than_refusal_ends_attempts() {
        let mut attempts = 0;
        let error = settle(&whole(), |_| -> Result<(), _> {
            attempts += 1;
            Err(Error::Missing("map"))
        });
        assert!(matches!(error, Err(Error::Missing("map"))));
        assert_eq!(attempts, 1);
    }
}
