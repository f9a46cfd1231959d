// Package bundle holds charts as trees of files: it reads them from archives and
// from directories, and packs them, the same bytes on any machine.
//
// # What a chart is
//
// A chart is a directory with a Chart.yaml that the package manager accepts:
// its own validation applies, and the rules below. Chart.yaml,
// requirements.yaml and the lock files have at most 1 MiB, are at most 100 levels
// deep, and their aliases stand for at most 8 MiB, where each node counts 32
// bytes and its text.
//
//   - A name is one part of a path, at most 250 bytes, without slash,
//     backslash, colon and what cannot be printed.
//   - A version is one that the package manager reads, at most 250 bytes.
//   - No dependency is null, and no two have the same name or alias.
//   - values.yaml is a map, when the chart is packed.
//   - Nothing in it is a link, a device or a pipe: those would be missing in
//     whatever is made of it.
//   - No name at its root begins with "..", and none is a drive letter and a
//     colon: the package manager refuses the archive.
//
// A byte order mark at the beginning of a file is passed over, as the package
// manager does. requirements.yaml holds dependencies and nothing else; they take
// the place of those in Chart.yaml, whatever the apiVersion, because that is what
// the package manager reads.
//
// # Archives
//
// An archive of a chart is compressed by gzip, has exactly one directory at the
// top, of any name, and each name once. [artifact.Read] says what else is refused.
// What [Chart.Pack] writes is named after the chart and in the normal form of
// [artifact.Pack]; [ReadArchive] accepts it.
//
// # .helmignore
//
// The file at the root of the chart, and only that one, says what a directory
// leaves out, as helm's package ignore reads it. It has at most 64 KiB and 1,000
// lines. What lies in an ignored directory is ignored.
package bundle
