// Package bucket fetches the content of object-storage buckets (specification,
// "Bucket"; reference A4, A8, A10).
//
// [New] returns the origin of a Bucket. This package does everything that is the same
// for every store. A [Provider] returns a [Driver], an interface of two methods, for
// one kind of store; the packages below this one implement them.
//
// # Revision
//
// The revision is sha256:HEX, the digest of a text with one line KEY SP ETAG LF for
// each object in the artifact, sorted by the bytes of the key. ETags have no quotes and
// no W/ (see [ETag]). Computing the revision reads no content. The fetch fails if an
// object is listed without an ETag, or with one that contains a space or a control
// character.
//
// # Keys
//
// The key, including spec.prefix, is the path in the artifact; spec.prefix is a prefix
// of keys, not a directory. Ignore rules apply first, and excluded objects may have any
// key. For the other keys these rules apply:
//
//   - Keys that end in / are directory markers and are left out; a note in the report
//     lists the markers that have content.
//   - Keys that cannot be paths are refused: those that are empty, have an empty, "."
//     or ".." part, a backslash, a control character (C0, C1, DEL) or text that is not
//     UTF-8, and those of more than 4096 bytes or with a part of more than 255.
//   - A key that is a directory of another, as a is of a/b, is refused.
//   - A key that is listed twice is refused.
//
// A refused key fails the fetch, and the error names it: no object is left out
// silently, and no two keys are merged. Names that some file systems do not support
// (con, a:b, A beside a) are kept unchanged, because an archive supports them.
//
// # Ignore rules
//
// The rules are those of the object .sourceignore at the root of the bucket, regardless
// of spec.prefix, followed by spec.ignore; there are no default patterns.
// [artifact.Ignore] documents the patterns. They are matched against the whole key as
// the path of a file. A key that is not a path is matched part by part, and an empty
// part counts: a//b is in the directory a, and the pattern a//b matches it.
//
// The object .sourceignore is always part of the artifact, even if rules exclude it,
// but not of the revision: if only its text changes, the artifact is rebuilt
// ([source.Revision].Renew). It may have at most 1 MiB. If it is outside spec.prefix,
// the origin looks for it among the first 1000 objects whose keys begin with its name.
// If the credentials do not allow that listing, its rules do not apply, and a note in
// the report says so.
//
// # Requests
//
// An unchanged bucket costs one listing, and a second one if .sourceignore is outside
// spec.prefix. That object is read only when its ETag changed; its text is kept in the
// state, bound to provider, endpoint and bucket.
//
// spec.timeout applies to each of these steps separately: log in, list objects, look
// for .sourceignore, read it, fetch. An error says how far the step got.
//
// # Consistency
//
// An object is read exactly as it was listed, or not at all. A bucket that changes
// during a fetch is listed again ([source.ErrMoved]), at most three times in a run.
// Objects that the published artifact contains with the same ETag are copied from it,
// if it comes from the same provider, endpoint and bucket and turns out to be intact.
//
// No store lists more than one page, usually of 1000 objects, atomically. If a bucket
// changes during the listing, its pages show different points in time, and so does
// .sourceignore if it is outside spec.prefix. Each object in the artifact then existed,
// but perhaps never all of them at the same time; the next run sees the remaining
// changes. Writers that need consistency across objects must put them into one object,
// or under a new prefix.
//
// # Local directories
//
// If [source.Env].Local maps ENDPOINT/BUCKET (spec.endpoint without its query and
// trailing slash) to a directory, that directory is read instead of the bucket: see
// [source.Dir]. Prefix and rules apply to it as to the bucket.
//
// # Limits
//
// [source.Env].Limits applies to the listed objects that are not excluded, before any
// of them is fetched: Bytes in total (default 16 GiB), FileBytes (as Bytes), Entries
// (1,000,000 objects) and NameBytes (4096). Excluded objects only use memory: a listing
// may have 512 MiB of keys, ETags and versions, plus 64 bytes for each object. A store
// that repeats its listing or a page token is detected at the third repetition at the
// latest.
package bucket
