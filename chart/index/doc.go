// Package index reads the indexes of Helm chart repositories, in YAML or JSON.
//
//	for e, err := range index.Entries(file, "podinfo") {
//
// [Entries] yields the versions of one chart and passes over those of others,
// [Select] chooses among them as Helm does, [All] yields everything, and [Check]
// reads everything and says what it found, what of it is malformed, and a sum
// that tells two indexes apart.
//
// # What an index is
//
// A mapping with the field apiVersion, which must be a text, and the field
// entries: a mapping of the names of charts to lists of their versions. Without
// entries, or when they are null, the index is empty. A name that is there twice
// has all the versions of both lists. Mappings are merged (<<) within an entry,
// not above. Scalars are texts, however they are spelled: version: 1.10 is "1.10".
//
// Two layouts are scanned, in memory that does not depend on the size of the
// index: YAML in block style, as helm and chartmuseum write it, and JSON. The
// scanner finds the entries that are asked for, and go.yaml.in/yaml/v3 or
// encoding/json decodes each of them. What is not asked for is passed over: other
// charts, and fields that [Entry] does not depend on. An index that is broken
// there is read without an error.
//
// Any other index is read again from its start and decoded whole by
// go.yaml.in/yaml/v3: one with anchors, aliases, tags, directives, collections in
// flow style that are not empty, explicit keys, or line breaks other than LF and
// CR LF. It may have 64 MiB and 4 million values, and the library takes several
// times its size of memory; a process reads one such index at a time.
//
// # What is malformed
//
// Entries that cannot be used are passed over by [Entries] and [All] and
// reported by [Check]: those that are null or no mapping; those whose name is
// missing, not that of their list, or has slashes, ".." or control characters;
// whose version is missing or none, or whose type is neither application nor
// library; those without a URL, or with a digest that is no SHA-256; those with a
// field of another kind than [Entry] has; those that are larger than the limit.
// Fields that Entry does not depend on are not judged. Of a field that is there
// twice the last counts. A time that cannot be read is as if it were not told.
//
// # The sum
//
// [Summary.Sum] depends on the text of every version with the name of its list,
// malformed ones included, and on that of the other fields of the index except
// generated. It does not depend on the order of charts, versions and fields of
// the index. The field created is part of it, since it decides between builds of
// one version: a generator that stamps it anew at each request changes the sum
// each time.
//
// # Limits
//
// Readers are read to their end and may be of any size unless the index is read
// whole: the caller limits them. A chart may have 100,000 versions, an entry that
// is scanned 1 MiB, where each value counts 16 bytes beside its text, a line
// likewise. Of the URLs of an entry 100 count. Aliases and merged mappings may stand
// for 4 million values in all. Errors quote what they cite of the index, 200 bytes
// of it at most.
package index
