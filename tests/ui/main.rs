//! The page for browsers in a real Chromium, against a real agent with real VMs:
//! `scripts/test ui`, as root.

mod access;
mod browser;
mod cost;
mod draw;
mod keyboard;
mod many;
mod mismatches;
mod past;
mod scene;
mod shown;
