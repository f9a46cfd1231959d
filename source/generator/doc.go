// Package generator makes artifacts of parts of the artifacts of other sources, as an
// ArtifactGenerator says. [New] is the origin of one artifact, [NewSummary] that of the
// generator itself.
//
// # What is copied
//
// The operations of an artifact run in order. from is @ALIAS/PATTERN. A pattern with
// none of * ? [ ] is a path. In others * matches within a folder and ** across folders;
// {a,b} is one of several texts. What a matching folder holds is copied with it. Links
// are in no artifact that is read, so none is followed and none is written.
//
//	a file to PATH      is PATH, or PATH/NAME where PATH is a folder by then
//	a file to PATH/     is PATH/NAME
//	a folder to PATH    is PATH/NAME and what it holds
//	DIR/** to PATH      is PATH and what DIR holds
//	another pattern     keeps the whole path that matches below PATH
//
// exclude has patterns of the same kind, which are matched with the path in the source
// and with that below the literal beginning of from; one without a slash is matched with
// the base name as well. What an excluded folder holds is excluded, where the folder
// itself would be copied. It is an error that nothing matches, or that all of it is
// excluded, unless the operation is optional.
//
// With the strategy Overwrite a file replaces the one that is there. With Merge it is
// merged into that one: both are read as YAML of at most 4 MiB and 100 levels, whose
// aliases stand for at most 4 MiB, the documents of a file as one; mappings are merged,
// all else is replaced, and keys are written in order. With Extract what archives
// (.tar.gz, .tgz) hold is copied to PATH; of what matches a pattern, other files are
// passed over. A file never takes the place of a folder.
//
// # The artifact
//
// Of the ignore rules of sources only those about files of version control apply. The
// revision is latest@ and the SHA-256 of the archive, or that of a source. An artifact
// whose content is what it was is kept, even if its sources have changed. With a
// [source.Pin] the revision is that of the pin.
//
// Limits are those of [source.Env], for all that one artifact is made of together, and
// for the artifact.
package generator
