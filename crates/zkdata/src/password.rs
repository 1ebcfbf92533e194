//! The password that ZooKeeper gives a session: computed from its id alone (protocol.md §2). Owns
//! that rule, so that clients of imported sessions can go on with them.

use baton_proto::PASSWORD_BYTES;

const SECRET: i64 = 0xb341_5c00;
const MULTIPLIER: u64 = 0x5_deec_e66d;
const MASK: u64 = (1 << 48) - 1;

/// The output of `java.util.Random(id ^ 0xB3415C00).nextBytes`.
#[must_use]
pub fn java_password(session_id: i64) -> [u8; PASSWORD_BYTES] {
    let mut state = ((session_id ^ SECRET) as u64 ^ MULTIPLIER) & MASK;
    let mut password = [0; PASSWORD_BYTES];
    for word in password.as_chunks_mut::<4>().0 {
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(0xb) & MASK;
        *word = ((state >> 16) as u32).to_le_bytes();
    }
    password
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_one_that_a_zookeeper_gave() {
        let given = 0x689b_0c62_d5cc_7253_8660_45de_a6c5_6cbd_u128.to_be_bytes();
        assert_eq!(java_password(0x0100_00f2_e396_0000), given);
    }
}
