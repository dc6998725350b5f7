//! One git repository as it is: where it lies, what it is capable of, its objects and refs, the user's git program.

pub mod beneath;
pub(super) mod caps;
pub mod git;
pub mod location;
pub(super) mod loose;
pub mod object;
pub(super) mod odb;
pub mod program;
pub mod refs;
pub mod repo_id;
pub mod revision;
pub mod tree;
