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
// are without quotes. No content is read for it.
//
// # Keys
//
// The key is the path in the artifact, spec.prefix included. Ignore rules see
// keys first: what they exclude may have any key. Of the rest
//
//   - keys that end in / are directory markers, and left out;
//   - keys that cannot be paths are refused: those with an empty, "." or ".."
//     part, a backslash, a control character or text that is not UTF-8, and those of
//     more than 4096 bytes or with a part of more than 255;
//   - a key that is a directory of another, as a is of a/b, is refused;
//   - a key that is listed twice is refused.
//
// Refused means that the fetch fails, and names keys: nothing is left out silently.
//
// # Ignore rules
//
// The object .sourceignore at the root of the bucket, wherever spec.prefix is,
// and then spec.ignore; there are no default patterns. That object is part of
// the artifact and no part of the revision.
//
// # Consistency
//
// An object is read as it was listed, or not at all. A bucket that changes while
// it is fetched is listed again ([source.ErrMoved]). Objects that are in the
// published artifact with the same ETag are copied from it.
package bucket
