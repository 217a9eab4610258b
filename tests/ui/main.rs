//! The page for browsers in a real Chromium, against a real agent with real VMs:
//! `scripts/test ui`, as root.

mod access;
mod browser;
mod keyboard;
mod past;
mod scene;
mod shown;
