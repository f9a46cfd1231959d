// Package bucket fetches the content of object-storage buckets (specification,
// "Bucket"; reference A4, A8, A10).
//
// [New] returns the origin of a Bucket. What is the same for every store is
// here; what differs is a [Driver] of two methods, which a [Provider] makes: the
// packages below this one.
//
// # Revision
//
// The revision is sha256:HEX, the digest of a text with one line KEY SP ETAG LF
// for each object that the artifact is made of, sorted by key as bytes. ETags
// are without quotes and W/ (see [ETag]). No content is read for it. An object
// that is listed without an ETag, or with one that has a space or a control
// character, is refused.
//
// # Keys
//
// The key is the path in the artifact, spec.prefix included; spec.prefix is the
// beginning of keys, not a directory. Ignore rules see keys first: what they
// exclude may have any key. Of the rest
//
//   - keys that end in / are directory markers, and left out; a note in the
//     report tells of those that hold something;
//   - keys that cannot be paths are refused: those that are empty, have an empty,
//     "." or ".." part, a backslash, a control character (C0, C1, DEL) or text that
//     is not UTF-8, and those of more than 4096 bytes or with a part of more than 255;
//   - a key that is a directory of another, as a is of a/b, is refused;
//   - a key that is listed twice is refused.
//
// Refused means that the fetch fails, and names keys: nothing is left out, and
// no two keys become one, silently. Names that some file systems cannot hold (con,
// a:b, A beside a) are kept as they are: an archive can.
//
// # Ignore rules
//
// The rules are those of the object .sourceignore at the root of the bucket,
// wherever spec.prefix is, and then spec.ignore; there are no default patterns.
// [artifact.Ignore] says what patterns mean. They are matched against the whole
// key, as that of a file; a key that is no path is matched part by part, where an
// empty part is a part: a//b is in the directory a, and the pattern a//b matches it.
//
// The object .sourceignore is part of the artifact, even if rules exclude it, and
// no part of the revision: when its text changes and nothing else, the artifact
// is made again ([source.Revision].Renew). It has at most 1 MiB. Where
// spec.prefix hides it, it is looked for among the first 1000 objects whose keys
// begin with its name; credentials that may not list these have no such rules, which a
// note in the report tells.
//
// # Requests
//
// A bucket that did not change costs its listing, and a second one if spec.prefix
// hides .sourceignore. That object is read when its ETag changed; its text is kept
// in the state, bound to provider, endpoint and bucket.
//
// spec.timeout bounds each step by itself: log in, list objects, look for
// .sourceignore, read it, fetch. An error says how far the step came.
//
// # Consistency
//
// An object is read as it was listed, or not at all. A bucket that changes while
// it is fetched is listed again ([source.ErrMoved]), three times in a run at most.
// Objects that are in the published artifact with the same ETag are copied from it,
// if it is of the same provider, endpoint and bucket, and found whole in the end.
//
// The listing is as atomic as the store makes it, and no store does for more than
// one page, of 1000 objects mostly: the pages of a bucket that changes meanwhile are
// of different times, and so is .sourceignore where spec.prefix hides it. What the
// artifact holds was then there, each object for itself, perhaps never together;
// the next run sees the rest. Writers that need more than that put what belongs
// together into one object, or under a new prefix.
//
// # Stand-ins
//
// A directory that [source.Env].Local gives for ENDPOINT/BUCKET, spec.endpoint
// without its query and the slash at its end, is read in place of the bucket: see
// [source.Dir]. Prefix and rules apply to it as to the bucket.
//
// # Limits
//
// [source.Env].Limits bounds what is kept of a listing, before anything of it is
// fetched: Bytes together (default 16 GiB), FileBytes (as Bytes), Entries
// (1,000,000 objects) and NameBytes (4096). What rules exclude costs only memory:
// a listing may have 512 MiB of keys, ETags and versions, with 64 bytes more for
// each object. A store that repeats its listing, or a page token, is noticed, at
// the latest when it has done so for the third time.
package bucket
