//! Health of the source: losses, fill of maps, and cost of programs.

use virtlens_abi as abi;
use virtlens_model::snapshot::{Dropped, MapFill, ProgramCost};
use zerocopy::IntoBytes;

use super::TaskPass;
use crate::maps::STATES_HASH;
use crate::sys;

/// Names of the losses in the kernel, in the order of `enum drop_reason`.
const DROP_REASONS: [&str; abi::map::DROP_REASONS as usize] = [
    "retired_full",
    "mark_full",
    "vm_full",
    "retired_names",
    "cgroup_depth",
    "residency_full",
    "throttle_hits_full",
    "walls_full",
    "memslots",
    "discards_at_once",
    "ended_vcpus_full",
    "ended_vcpus_missed",
    "mark_unread",
    "mark_busy",
    "process_renamed",
];

/// The losses as last read.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// By reason, in the order of [`DROP_REASONS`].
    in_kernel: [u64; abi::map::DROP_REASONS as usize],
    interrupted: u64,
}

/// Returns the losses by missed runs of programs. `on_free` compensates for missed runs
/// of `on_exit` if it can detect them (`states_complete`).
fn interrupted(programs: &[ProgramCost], states_complete: bool) -> u64 {
    let is_lost = |one: &&ProgramCost| !(states_complete && one.program == "on_exit");
    programs.iter().filter(is_lost).map(|one| one.missed).sum()
}

impl TaskPass {
    /// Missed runs of the attached programs for which no other program compensates.
    pub(super) fn interrupted(&self, programs: &[ProgramCost]) -> u64 {
        interrupted(programs, self.states_complete)
    }

    /// Returns the losses since the programs were loaded; `programs` is the result of
    /// [`programs`](Self::programs).
    pub fn drops(&mut self, programs: &[ProgramCost]) -> Vec<Dropped> {
        let interrupted = self.interrupted_before + self.interrupted(programs);
        self.lost.interrupted = self.lost.interrupted.max(interrupted);
        for (index, count) in (0u32..).zip(&mut self.lost.in_kernel) {
            *count = self.maps.sum("drops", index.as_bytes()).unwrap_or(*count);
        }
        let in_kernel = DROP_REASONS.into_iter().zip(self.lost.in_kernel);
        in_kernel
            .map(|(reason, count)| Dropped { reason, count })
            .chain([
                Dropped {
                    reason: "file_pass",
                    count: self.search.errors,
                },
                Dropped {
                    reason: "ram_pieces",
                    count: self.memory.lost(),
                },
                Dropped {
                    reason: "levels_full",
                    count: self.throttle.lost(),
                },
                Dropped {
                    reason: "book_full",
                    count: self.handover.lost(),
                },
                Dropped {
                    reason: "map_layout",
                    count: self.dropped_maps,
                },
                Dropped {
                    reason: "interrupted",
                    count: self.lost.interrupted,
                },
            ])
            .collect()
    }

    /// Returns the maps that can fill up, and their fill. `walls` has the same size and
    /// entries as `levels`.
    pub fn maps(&self) -> Vec<MapFill> {
        let fill = |map: &'static str, entries: Option<u64>| MapFill {
            map,
            entries,
            max_entries: u64::from(self.maps.max_entries(map)),
        };
        let states = (!self.plan.task_storage).then(|| fill(STATES_HASH, self.state_entries));
        let others = [
            fill("retired", Some(self.retired.entries)),
            fill("residency", self.placement.residency_entries),
            fill("vms", self.placement.vms_entries),
            fill("watched", Some(self.watched.len() as u64)),
            fill("levels", Some(self.throttle.levels())),
            fill("throttle_hits", Some(self.throttle.hit_entries)),
            fill("discards", Some(self.memory.entries())),
            fill("ended_vcpus", Some(self.retired.vcpu_entries)),
            fill("book", Some(self.handover.pages())),
        ];
        others.into_iter().chain(states).collect()
    }

    /// Returns the loaded programs with their missed runs, and their cost if the kernel's
    /// statistics are enabled.
    pub fn programs(&self) -> Vec<ProgramCost> {
        let loaded = self.plan.programs();
        loaded
            .filter_map(|name| {
                let counted = sys::program_runs(self.programs.get(name)?).ok()?;
                Some(ProgramCost {
                    program: name,
                    runs: counted.runs,
                    run_ns: counted.run_ns,
                    missed: counted.misses,
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_run_of_on_exit_is_a_loss_without_on_free() {
        let programs = [("on_exit", 5), ("on_free", 2), ("on_madvise", 3)];
        let programs = programs.map(|(program, missed)| ProgramCost {
            program,
            runs: 0,
            run_ns: 0,
            missed,
        });
        assert_eq!(interrupted(&programs, true), 5);
        assert_eq!(interrupted(&programs[..1], true), 0);
        assert_eq!(interrupted(&programs, false), 10);
    }
}
