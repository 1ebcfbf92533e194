//! Fixed-width little-endian fields in a byte slice. Reading outside the slice gives zero, so
//! callers check the length once and no index can panic.

/// The `u32` at `at`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |field| u32::from_le_bytes(*field))
}

/// The `u64` at `at`.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |field| u64::from_le_bytes(*field))
}

/// Puts `field` at `at`; the slice must be long enough.
pub(crate) fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    if let Some(target) = bytes.get_mut(at..at + field.len()) {
        target.copy_from_slice(field);
    }
}

/// `len` rounded up to a multiple of 8.
pub(crate) fn padded(len: usize) -> usize {
    len.next_multiple_of(8)
}

/// Returns whether every byte is zero.
pub(crate) fn all_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
