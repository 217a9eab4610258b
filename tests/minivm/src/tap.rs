//! A tap: a network interface whose other end is a file.

use std::ffi::{c_char, c_short};
use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use anyhow::{Context, ensure};

/// Creates a tap with this name and sets it up; it is removed when its file is closed.
/// Frames have a virtio header, as those of a VMM do.
pub(crate) fn create(name: &str) -> anyhow::Result<File> {
    let file = File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .context("cannot open /dev/net/tun: load the module tun, and run as root")?;
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request(&file, libc::TUNSETIFF, name, flags).context("TUNSETIFF")?;
    // Any socket accepts ioctls on interfaces.
    let socket = UdpSocket::bind("127.0.0.1:0").context("cannot open a socket")?;
    request(&socket, libc::SIOCSIFFLAGS, name, libc::IFF_UP).context("SIOCSIFFLAGS")?;
    Ok(file)
}

fn request(
    file: &impl AsRawFd,
    request: libc::Ioctl,
    name: &str,
    flags: libc::c_int,
) -> anyhow::Result<()> {
    // SAFETY: all zeroes is a valid ifreq.
    let mut order: libc::ifreq = unsafe { std::mem::zeroed() };
    ensure!(
        name.len() < order.ifr_name.len(),
        "{name:?}: interface names have at most 15 bytes"
    );
    for (to, byte) in order.ifr_name.iter_mut().zip(name.bytes()) {
        *to = c_char::from_ne_bytes([byte]);
    }
    order.ifr_ifru.ifru_flags = c_short::try_from(flags)?;
    // SAFETY: both requests take a live ifreq.
    let failed = unsafe { libc::ioctl(file.as_raw_fd(), request, &raw mut order) };
    ensure!(failed == 0, "{name}: {}", std::io::Error::last_os_error());
    Ok(())
}
