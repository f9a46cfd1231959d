// Package artifact creates, stores, serves and reads artifacts: the archives that sources publish.
//
// [Pack] writes a tree as an archive, and [Read] opens an archive as a tree without extracting it.
// [Ignore] and [Mount] create views of trees, [Diff] compares two trees. A [Store] stores artifacts
// and serves them, a [Client] fetches them, and a [Cache] stores content for later fetches.
// [Extract] writes a tree to a directory.
//
// # Archive format
//
// An archive is a gzip-compressed tar stream in normal form (reference A6): equal trees give equal
// bytes on every machine, and the tar stream is the same as that of other implementations of the
// source API.
//
//   - There is an entry for each directory and each regular file. The first is
//     the root, named "."; the others are named by their path from it, with
//     slashes between the parts and none at the end. Nothing else has an entry:
//     links, devices and submodules are left out and reported.
//   - Entries are in the order of [io/fs.WalkDir]: a directory comes before
//     its entries, which are sorted by name, as bytes.
//   - A directory has mode 0750, a file with any executable bit 0700, any other
//     file 0600. Owner and group are 0 without names, the time is the Unix epoch.
//   - Headers are those of archive/tar: USTAR if the values fit, which requires
//     an ASCII name of at most 100 bytes, or 256 that can be split at a slash,
//     and a size below 8 GiB; otherwise PAX, with records for the values that do not fit.
//     Two blocks of zeros end the stream.
//   - The gzip layer is one member without name or time. Blocks are deflated
//     independently, each with the 32 KiB before it as dictionary, so that the
//     bytes do not depend on the number of processors. A block ends after the
//     first tar block that makes it 384 KiB or more and has a CRC-32C whose last
//     nine bits are zero, or at 1 MiB, so that a change to a tree leaves most blocks
//     unchanged. The bytes do depend on the encoder, whose version go.mod pins:
//     compare tar streams, not archives, between releases.
//
// A name that consumers refuse (reference A7), because it contains a backslash
// or NUL, is an error: an archive with it could be published but not read.
//
// # Reading
//
// [Read] accepts archives of other programs: a tar stream, plain or compressed by gzip or zstd. It
// trusts none of its input and writes nothing but its spool.
//
//   - "." parts, empty parts and a trailing slash of names are dropped. Absolute
//     and empty names, "..", backslashes and NUL are refused, also for entries
//     that are left out.
//   - Directories may lack entries of their own. If several entries have the same name,
//     the last wins; a name that is both a file and a directory is refused.
//   - Symbolic and hard links, devices and pipes are left out and reported. They
//     hide nothing: a file below the name of a link is a file in a
//     directory. Sparse files and entries of other types are refused.
//   - Only the executable bits of a mode count, if any is set: files have mode
//     0644 or 0755. Owners, times and extended attributes are not kept.
//   - A gzip stream may have several members. A zstd stream may have several frames,
//     skippable frames, and checksums or none. A zstd window has at most 128 MiB, the
//     default limit of the zstd program; the decoder keeps it in memory. Dictionaries are
//     not supported. The zstd program writes windows of at most 8 MiB up to level 19, and
//     of 128 MiB at level 22 and with --long.
//   - The tar stream must have an end-of-archive marker of at least one block,
//     and only zeros may follow it; nothing may follow the compressed stream. The
//     input is read to its end.
//   - [Limits] bound bytes, entries, names and the compression ratio while
//     reading. Memory is linear in the number of entries, about 100 bytes and
//     the name for each, whatever else their headers contain.
//
// # Digests
//
// A digest is ALGORITHM:HEX, lower case, of the bytes of the published file: sha256 (the default),
// sha384, sha512 or blake3. A bare value of 64 digits is read as sha256.
package artifact

import "time"

// An Artifact describes one published file: where it is, its content and how to check it
// (specification, sources, "Artifact"; reference A4).
//
// Digest has the form ALGORITHM:HEX and covers the bytes of the file. Path is slash separated and
// relative to the root of the [Store]. It always refers to the same content, because it contains
// the digest.
type Artifact struct {
	Path           string            `json:"path"`
	URL            string            `json:"url"`
	Revision       string            `json:"revision"`
	Digest         string            `json:"digest,omitempty"`
	LastUpdateTime time.Time         `json:"lastUpdateTime"`
	Size           int64             `json:"size,omitempty"`
	Metadata       map[string]string `json:"metadata,omitempty"`
}
