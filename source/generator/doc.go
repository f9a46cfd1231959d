// Package generator makes artifacts from parts of the artifacts of other sources, as specified by
// an ArtifactGenerator. [New] returns the origin of one artifact, [NewSummary] that of the
// generator itself.
//
// # What is copied
//
// The operations of an artifact run in order. The field from is @ALIAS/PATTERN. A pattern with none
// of the characters * ? [ ] is a path. In other patterns, * matches within a folder and ** across
// folders; {a,b} matches either text. A matching folder is copied with its content. Artifacts have
// no links, so none is followed and none is written.
//
//	a file to PATH      is PATH, or PATH/NAME if PATH is already a folder
//	a file to PATH/     is PATH/NAME
//	a folder to PATH    is PATH/NAME with its content
//	DIR/** to PATH      is PATH with the content of DIR
//	another pattern     keeps the whole matching path below PATH
//
// The field exclude has patterns of the same kind. They are matched against the path in the source
// and against the path below the literal beginning of from; a pattern without a slash is also
// matched against the base name. If an excluded folder would be copied itself, its content is
// excluded too. It is an error if nothing matches, or if all matches are excluded, unless the
// operation is optional.
//
// With the strategy Overwrite, a file replaces an existing one. With Merge, it is merged into the
// existing one: both are read as YAML of at most 4 MiB and 100 levels, whose aliases may expand to
// at most 4 MiB. The documents of a file are read as one; mappings are merged, other values are
// replaced, and keys are written in order. With Extract, the content of archives (.tar.gz, .tgz) is
// copied to PATH; a pattern may match other files, which are skipped. A file never replaces a
// folder.
//
// # The artifact
//
// Only the ignore rules for files of version control apply, not those of the sources. The revision
// is latest@ and the SHA-256 of the archive, or the revision of a source. If the content has not
// changed, the artifact is kept, even if its sources have changed. With a [source.Pin] the revision
// is that of the pin.
//
// The limits of [source.Env] apply to the total of all inputs of one artifact, and to the artifact
// itself.
package generator
