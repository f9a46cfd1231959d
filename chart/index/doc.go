// Package index reads the indexes of Helm chart repositories, in YAML or JSON.
//
//	for e, err := range index.Entries(file, "podinfo") {
//
// [Entries] yields the versions of one chart and skips those of others, [Select] chooses
// among them as Helm does, [All] yields everything, and [Check] reads everything and
// reports what it found: the numbers, the malformed entries, and a sum that distinguishes
// two indexes.
//
// # What an index is
//
// An index is a mapping with the field apiVersion, which must be a text, and the field
// entries: a mapping of chart names to lists of versions. Without entries, or if they are
// null, the index is empty. If a name occurs twice, it has the versions of both lists.
// Mappings are merged (<<) within an entry, not above. Scalars are texts, however they are
// spelled: version: 1.10 is "1.10".
//
// Two layouts are scanned, in memory that does not depend on the size of the index: YAML in
// block style, as helm and chartmuseum write it, and JSON. The scanner finds the requested
// entries, and go.yaml.in/yaml/v3 or encoding/json decodes each of them. The scanner skips
// other charts, and fields that [Entry] does not depend on. Errors in the skipped parts are
// not detected.
//
// Any other index is read again from its start and decoded whole by go.yaml.in/yaml/v3: one
// with anchors, aliases, tags, directives, collections in flow style that are not empty,
// explicit keys, or line breaks other than LF and CR LF. It may have 64 MiB and 4 million
// values. The library needs several times its size in memory, so a process reads one such
// index at a time.
//
// # What is malformed
//
// [Entries] and [All] skip entries that cannot be used, and [Check] reports them. An entry
// is malformed if it is null or not a mapping; if its name is missing, differs from that of
// its list, or has slashes, ".." or control characters; if its version is missing or
// invalid; if its type is neither application nor library; if it has no URL, or a digest
// that is not a SHA-256; if a field has another kind than in [Entry]; or if it is larger
// than the limit. Fields that Entry does not depend on are not checked. If a field occurs
// twice, the last one counts. A time that cannot be parsed counts as missing.
//
// # The sum
//
// [Summary.Sum] depends on the text of every version with the name of its list, malformed
// ones included, and on that of the other fields of the index except generated. It does not
// depend on the order of charts, versions and fields of the index. The field created is
// part of it, since it decides between builds of one version: a generator that sets it anew
// at each request changes the sum each time.
//
// # Limits
//
// Readers are read to their end and may be of any size unless the index is read whole: the
// caller limits them. A chart may have 100,000 versions. A scanned entry may have 1 MiB,
// where each value counts 16 bytes in addition to its text; a line may have 1 MiB. The
// first 100 URLs of an entry count. Aliases and merged mappings may expand to 4 million
// values in all. Errors quote text of the index, at most 200 bytes of it.
package index
