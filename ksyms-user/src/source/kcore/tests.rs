//! Opening the file.

use std::io::Write as _;

use super::*;

fn opened(bytes: &[u8]) -> Result<Kcore, SourceError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    Kcore::open_path(file.path())
}

#[test]
fn a_missing_file_is_unavailable() {
    let error = Kcore::open_path(Path::new("/nonexistent/kcore")).unwrap_err();
    assert!(matches!(error, SourceError::Unavailable { .. }));
    assert!(error.is_environment());
    assert!(error.to_string().contains("CONFIG_PROC_KCORE"), "{error}");
}

#[test]
fn what_is_no_kcore_is_refused() {
    let error = opened(b"short").unwrap_err();
    assert!(matches!(error, SourceError::Io { call: "read", .. }));
    let error = opened(&[0; 4096]).unwrap_err();
    assert!(matches!(error, SourceError::Kcore { .. }));
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.to_string(), "no ELF header at offset 0x0");
    assert!(error.to_string().contains("/proc/kallsyms"), "{error}");
}
