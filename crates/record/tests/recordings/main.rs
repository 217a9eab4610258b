//! Recordings are what was recorded, whatever happens to their files.

mod damaged;
mod incidents;
mod limits;
mod moving;
mod round_trip;
