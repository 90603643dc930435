//! The frames that a guest sends to its host.
//!
//! A frame is a byte for its kind, two little-endian `u32` (the length of the
//! payload as sent and as meant) and the payload. Where the two lengths differ
//! the payload is one LZ4 block: an emulated serial port moves about half a
//! megabyte a second, and most of what our commands print is JSON.

use std::io;

/// The largest payload; what claims to be larger is no frame.
const LIMIT: usize = 1 << 20;
const HEADER: usize = 9;
/// Shorter payloads are not worth compressing.
const WORTH_COMPRESSING: usize = 256;

/// One thing the guest has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The guest is set up and the command about to start.
    Started,
    /// The command wrote this to its standard output.
    Stdout(Vec<u8>),
    /// The command wrote this to its standard error.
    Stderr(Vec<u8>),
    /// The command ended with this exit status. Nothing follows.
    Exited(u8),
    /// The guest could not be set up, for this reason. Nothing follows.
    Failed(String),
}

impl Frame {
    /// The frame as bytes, to be written in one go.
    ///
    /// # Panics
    ///
    /// When it holds more than 1 MiB.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (kind, payload): (u8, &[u8]) = match self {
            Self::Started => (0, &[]),
            Self::Stdout(bytes) => (1, bytes),
            Self::Stderr(bytes) => (2, bytes),
            Self::Exited(status) => (3, std::slice::from_ref(status)),
            Self::Failed(reason) => (4, reason.as_bytes()),
        };
        assert!(
            payload.len() <= LIMIT,
            "a frame holds at most {LIMIT} bytes"
        );
        let packed = (payload.len() >= WORTH_COMPRESSING)
            .then(|| lz4_flex::block::compress(payload))
            .filter(|packed| packed.len() < payload.len());
        let sent = packed.as_deref().unwrap_or(payload);
        let mut frame = Vec::with_capacity(HEADER + sent.len());
        frame.push(kind);
        for length in [sent.len(), payload.len()] {
            let length = u32::try_from(length).expect("checked against LIMIT");
            frame.extend_from_slice(&length.to_le_bytes());
        }
        frame.extend_from_slice(sent);
        frame
    }

    fn decode(kind: u8, payload: Vec<u8>) -> io::Result<Self> {
        match (kind, payload.as_slice()) {
            (0, []) => Ok(Self::Started),
            (1, _) => Ok(Self::Stdout(payload)),
            (2, _) => Ok(Self::Stderr(payload)),
            (3, [status]) => Ok(Self::Exited(*status)),
            (4, _) => Ok(Self::Failed(String::from_utf8_lossy(&payload).into_owned())),
            _ => Err(garbled(format!("a frame of kind {kind}"))),
        }
    }
}

/// Cuts a stream of bytes, arriving in any pieces, into frames.
#[derive(Debug, Default)]
pub struct Decoder {
    pending: Vec<u8>,
}

impl Decoder {
    /// Adds bytes that arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// The next frame, if all of it has arrived.
    ///
    /// # Errors
    ///
    /// When the bytes cannot come from [`Frame::encode`].
    pub fn next_frame(&mut self) -> io::Result<Option<Frame>> {
        let Some((&[kind], rest)) = self.pending.split_first_chunk() else {
            return Ok(None);
        };
        let Some((&sent, rest)) = rest.split_first_chunk() else {
            return Ok(None);
        };
        let Some((&meant, rest)) = rest.split_first_chunk() else {
            return Ok(None);
        };
        let sent = u32::from_le_bytes(sent) as usize;
        let meant = u32::from_le_bytes(meant) as usize;
        if sent > meant || meant > LIMIT {
            return Err(garbled(format!("a frame of {sent} for {meant} bytes")));
        }
        let Some(payload) = rest.get(..sent) else {
            return Ok(None);
        };
        let payload = if sent == meant {
            payload.to_vec()
        } else {
            lz4_flex::block::decompress(payload, meant)
                .ok()
                .filter(|payload| payload.len() == meant)
                .ok_or_else(|| garbled("a damaged block".to_owned()))?
        };
        self.pending.drain(..HEADER + sent);
        Frame::decode(kind, payload).map(Some)
    }
}

fn garbled(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Frame> {
        vec![
            Frame::Started,
            Frame::Stdout(b"one line\n".to_vec()),
            Frame::Stderr(Vec::new()),
            Frame::Stdout(br#"{"name":"tcp_sendmsg","hits":1}"#.repeat(2000)),
            // Does not compress.
            Frame::Stdout(
                (0..70_000_u32)
                    .flat_map(|i| (i.wrapping_mul(i) ^ (i << 13)).to_le_bytes())
                    .collect(),
            ),
            Frame::Failed("no /proc".to_owned()),
            Frame::Exited(143),
        ]
    }

    #[test]
    fn frames_arrive_whole_in_any_pieces() {
        let bytes: Vec<u8> = samples().iter().flat_map(Frame::encode).collect();
        for size in [1, 7, 4096, bytes.len()] {
            let mut decoder = Decoder::default();
            let mut frames = Vec::new();
            for piece in bytes.chunks(size) {
                decoder.push(piece);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    frames.push(frame);
                }
            }
            assert_eq!(frames, samples(), "in pieces of {size}");
        }
    }

    #[test]
    fn json_travels_compressed() {
        let json = br#"{"name":"tcp_sendmsg","hits":1}"#.repeat(2000);
        assert!(Frame::Stdout(json.clone()).encode().len() < json.len() / 10);
    }

    #[test]
    fn garbage_is_an_error_and_not_a_wait() {
        for bytes in [
            &b"Linux version 6.12"[..],
            &[9, 0, 0, 0, 0, 0, 0, 0, 0],
            &[3; 9],
        ] {
            let mut decoder = Decoder::default();
            decoder.push(bytes);
            assert!(decoder.next_frame().is_err(), "{bytes:?}");
        }
    }
}
