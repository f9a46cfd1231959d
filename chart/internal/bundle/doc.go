// Package bundle represents charts as trees of files: it reads them from archives and from
// directories, and packs them to the same bytes on any machine.
//
// # What a chart is
//
// A chart is a directory with a Chart.yaml that the package manager accepts: its own
// validation applies, and the rules below. Chart.yaml, requirements.yaml and the lock files
// have at most 1 MiB, are at most 100 levels deep, and their aliases expand to at most 8
// MiB, where each node counts 32 bytes and its text.
//
//   - A name is one part of a path, at most 250 bytes, without slash, backslash, colon and
//     unprintable characters.
//   - A version is one that the package manager can parse, at most 250 bytes.
//   - No dependency is null, and no two have the same name or alias.
//   - values.yaml is a map, when the chart is packed.
//   - It contains no link, device or pipe: these would be missing from anything built from
//     the chart.
//   - No name at its root begins with "..", and none is a drive letter and a colon: the
//     package manager rejects such an archive.
//
// A byte order mark at the beginning of a file is skipped, as the package manager does.
// requirements.yaml holds dependencies and nothing else. They replace those in Chart.yaml,
// whatever the apiVersion, because that is how the package manager reads them.
//
// # Archives
//
// An archive of a chart is compressed with gzip, has exactly one directory at the top, of
// any name, and has each name once. [artifact.Read] says what else is rejected.
// [Chart.Pack] names the directory after the chart and writes the normal form of
// [artifact.Pack]; [ReadArchive] accepts it.
//
// # .helmignore
//
// The file at the root of the chart, and only that one, says which files a directory leaves
// out, by the rules of helm's package ignore. It has at most 64 KiB and 1,000 lines.
// Everything in an ignored directory is ignored.
package bundle
