// Package index reads the indexes of Helm chart repositories, in YAML or JSON,
// as they arrive, in memory that does not depend on their size.
//
//	for e, err := range index.Entries(response.Body, "podinfo") {
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
// entries, or when they are null, the index is empty. Any YAML 1.2 will do, and
// what YAML 1.1 has beyond it as far as go-yaml reads it: block and flow style,
// anchors and aliases, comments, quoted keys, any line break, fields and charts
// in any order. A name that is there twice has all the versions of both lists.
// Mappings are merged (<<) within an entry, not above. Scalars are texts,
// however they are spelled: version: 1.10 is "1.10".
//
// What is not asked for is not taken apart where it is written as generators
// write it, which is block style, or JSON; the other shapes are read in whole,
// which takes longer and says the same. An index that is broken where nobody
// asked may thus be read without an error.
//
// # What is malformed
//
// Entries that nobody can use are passed over by [Entries] and [All] and
// reported by [Check]: those that are null or no mapping; those whose name is
// missing, not that of their list, or has slashes, ".." or control characters;
// whose version is missing or none, or whose type is neither application nor
// library; those without a URL, or with a digest that is no SHA-256; those with
// null among their maintainers or dependencies, with a field that is there
// twice, or a field that is of another kind than [Entry] has; those that are
// larger than the limit. Several dependencies of one name are no defect, nor is
// a field that Entry does not have. A time that cannot be read is as if it were
// not told.
//
// # The sum
//
// [Summary.Sum] depends on every version with the name of its list and all its
// fields, malformed ones included (one that is larger than the limit counts with
// the name of its list alone), and on the other fields of the index except
// generated. It does not depend on the order of charts, versions and fields, on
// fields that are null, nor on style and spelling; the order of other lists
// matters. The field created is part of it, since it decides between builds of
// one version: a generator that stamps it anew at each request changes the sum
// each time. It is the SHA-256 of an LtHash of 1024 lanes of 16 bits.
//
// # Limits
//
// Readers are read to their end and may be of any size: the caller limits them.
// An entry may have 1 MiB, a scalar likewise, a chart 100,000 versions, and
// collections may be 100 deep; aliases may stand for 16 MiB in all. Memory is
// about 150 KB, and what the largest entry that is asked for takes. Errors quote
// what they cite of the index, 100 bytes of it at most.
package index
