//! The first frames of a connection: the connecting server says who it is, the accepting one too,
//! and the connecting one repeats the number that it received. So a recorded hello that somebody
//! sends again opens nothing.

use crate::codec::input::{Input, Malformed};
use crate::codec::lane::Lane;
use crate::codec::pieces::FrameBody;

/// The versions of the protocol between servers that a build speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProtocolRange {
    /// The oldest.
    pub oldest: u16,
    /// The newest.
    pub newest: u16,
}

impl ProtocolRange {
    /// The versions that this build speaks. Version 2 has the frame with a wall clock. A hello has
    /// had an address for the last part of version 1: servers from before refuse one that names no
    /// later version, since bytes follow the last field that they know.
    pub const THIS: ProtocolRange = ProtocolRange {
        oldest: 1,
        newest: 2,
    };

    /// The newest version that both speak.
    pub fn common(self, other: ProtocolRange) -> Option<u16> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }
}

impl std::fmt::Display for ProtocolRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} to {}", self.oldest, self.newest)
    }
}

/// Greeting of a server: itself, and the server that it expects on the other side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The versions of the protocol that it speaks. Later versions keep the place of this field.
    pub protocol: ProtocolRange,
    /// Purpose of the connection.
    pub lane: Lane,
    /// A number that was drawn for this connection.
    pub nonce: u64,
    /// A number that was drawn when its process started; never 0.
    pub run: u64,
    /// The cluster that it belongs to; 0: none yet, its data folder is empty.
    pub cluster: u64,
    /// Its id.
    pub from: u64,
    /// The id of the server that it wants to talk to.
    pub to: u64,
    /// The incarnation of its data folder; never 0.
    pub incarnation: u128,
    /// The incarnation that the member `to` has, as far as it knows; 0 when it does not.
    pub to_incarnation: u128,
    /// Its term.
    pub term: u64,
    /// The log entry of the newest membership that it has applied; 0 for none.
    pub membership_index: u64,
    /// The newest entry of its log that is on disk.
    pub last_index: u64,
    /// Its wall clock, in milliseconds since 1970.
    pub wall_ms: i64,
    /// The highest format level that it can read.
    pub level: u32,
    /// Address at which others reach it; empty if it does not say, which holds for every welcome.
    pub address: String,
    /// Proof of what the members have committed and acknowledged.
    pub proof: LogProof,
}

/// Log positions that a server shows. All 0 from a server of version 1 of the protocol,
/// which proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogProof {
    /// The newest entry that the sender knows to be committed; 0 for none.
    pub commit_index: u64,
    /// The term of that entry; 0 when it is not known.
    pub commit_term: u64,
    /// The newest entry that the sender's data folder is known to have acknowledged, while its log
    /// lacks it: the folder was rolled back, and the sender does not vote. 0: it was not.
    pub acknowledged_index: u64,
}

impl LogProof {
    fn write(self, out: &mut FrameBody) {
        out.u64(self.commit_index);
        out.u64(self.commit_term);
        out.u64(self.acknowledged_index);
    }

    /// Reads the last part of a hello or a welcome, which servers of version 1 do not send.
    fn read(input: &mut Input) -> Result<LogProof, Malformed> {
        if input.is_empty() {
            return Ok(LogProof::default());
        }
        Ok(LogProof {
            commit_index: input.u64()?,
            commit_term: input.u64()?,
            acknowledged_index: input.u64()?,
        })
    }
}

/// The longest address, in bytes.
const MAX_ADDRESS: usize = 1024;

impl Hello {
    pub(crate) fn write(&self, out: &mut FrameBody) {
        self.write_start(out);
        // An address that is too long is left out; a welcome has none.
        let address = Some(self.address.as_bytes()).filter(|it| it.len() <= MAX_ADDRESS);
        let address = address.unwrap_or_default();
        out.u16(u16::try_from(address.len()).unwrap_or(0));
        out.slice(address);
        self.proof.write(out);
    }

    /// The part that a welcome has, too.
    fn write_start(&self, out: &mut FrameBody) {
        out.u16(self.protocol.oldest);
        out.u16(self.protocol.newest);
        out.u8(self.lane.as_byte());
        out.zeros(3);
        out.u64(self.nonce);
        out.u64(self.run);
        out.u64(self.cluster);
        out.u64(self.from);
        out.u64(self.to);
        out.u128(self.incarnation);
        out.u128(self.to_incarnation);
        out.u64(self.term);
        out.u64(self.membership_index);
        out.u64(self.last_index);
        out.i64(self.wall_ms);
        out.u32(self.level);
        out.zeros(4);
    }

    pub(crate) fn read(input: &mut Input) -> Result<Hello, Malformed> {
        let hello = Hello::read_start(input)?;
        if input.is_empty() {
            // A server from before hellos had an address.
            return Ok(hello);
        }
        let length = input.u16()?;
        if usize::from(length) > MAX_ADDRESS {
            return Err("its address is too long");
        }
        let address = input.bytes(length.into())?;
        let address = std::str::from_utf8(&address).map_err(|_| "its address is not UTF-8")?;
        if address.chars().any(char::is_control) {
            return Err("its address has a control character");
        }
        Ok(Hello {
            address: address.to_owned(),
            proof: LogProof::read(input)?,
            ..hello
        })
    }

    fn read_start(input: &mut Input) -> Result<Hello, Malformed> {
        let protocol = ProtocolRange {
            oldest: input.u16()?,
            newest: input.u16()?,
        };
        if protocol.oldest == 0 || protocol.newest < protocol.oldest {
            return Err("its protocol versions are out of order");
        }
        let lane = Lane::from_byte(input.u8()?).ok_or("its lane is unknown")?;
        input.zeros(3)?;
        let hello = Hello {
            protocol,
            lane,
            nonce: input.u64()?,
            run: input.u64()?,
            cluster: input.u64()?,
            from: input.u64()?,
            to: input.u64()?,
            incarnation: input.u128()?,
            to_incarnation: input.u128()?,
            term: input.u64()?,
            membership_index: input.u64()?,
            last_index: input.u64()?,
            wall_ms: input.i64()?,
            level: input.u32()?,
            address: String::new(),
            proof: LogProof::default(),
        };
        input.zeros(4)?;
        if hello.incarnation == 0 {
            return Err("its incarnation is 0");
        }
        if hello.run == 0 {
            return Err("the number of its process is 0");
        }
        Ok(hello)
    }

    /// Reads the protocol versions alone, from the body of a hello or of a welcome of any version.
    pub(crate) fn peek_protocol(input: &mut Input) -> Result<ProtocolRange, Malformed> {
        Ok(ProtocolRange {
            oldest: input.u16()?,
            newest: input.u16()?,
        })
    }
}

/// The accepting server's answer to a [`Hello`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// The other side.
    pub hello: Hello,
    /// The number that the hello had.
    pub echo: u64,
}

impl Welcome {
    pub(crate) fn write(&self, out: &mut FrameBody) {
        self.hello.write_start(out);
        out.u64(self.echo);
        self.hello.proof.write(out);
    }

    pub(crate) fn read(input: &mut Input) -> Result<Welcome, Malformed> {
        let hello = Hello::read_start(input)?;
        let echo = input.u64()?;
        let proof = LogProof::read(input)?;
        Ok(Welcome {
            hello: Hello { proof, ..hello },
            echo,
        })
    }
}

/// The connecting server's answer to a [`Welcome`], after which both send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confirmation {
    /// The number that the welcome had.
    pub echo: u64,
}

impl Confirmation {
    pub(crate) fn write(&self, out: &mut FrameBody) {
        out.u64(self.echo);
    }

    pub(crate) fn read(input: &mut Input) -> Result<Confirmation, Malformed> {
        Ok(Confirmation { echo: input.u64()? })
    }
}
