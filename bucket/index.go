package bucket

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strings"

	"github.com/headgate-io/headgate/artifact"
)

// indexKey names the entry of the cache that says which objects the artifact a
// was made of, and as what they were listed: the text whose digest is its
// revision. It is about one bucket, and about the one archive with that digest.
func (o *Origin) indexKey(revision, digest string) string {
	return strings.Join([]string{"objects of", placeOf(&o.bucket.Spec), revision, digest}, " ")
}

// remember keeps the text of the revision for the next fetch, once its artifact
// was written to w, where that knows the digest as a store does. A cache that
// fails costs the next fetch time.
func (c *content) remember(w io.Writer) {
	written, ok := w.(interface{ Sum() string })
	if !ok || c.origin.env.Cache == nil {
		return
	}
	list := c.snapshot.list
	c.origin.env.Cache.Put(c.origin.indexKey(c.rev.ID, written.Sum()), func(w io.Writer) error {
		b, line := bufio.NewWriterSize(w, 64<<10), []byte(nil)
		for i := range list.len() {
			if !list.kept(i) {
				continue
			}
			line = list.at(i).appendLine(line[:0])
			if _, err := b.Write(line); err != nil {
				return err
			}
		}
		return b.Flush()
	})
}

// forget does away with what is remembered of a, which was found to be damaged.
func (o *Origin) forget(a artifact.Artifact, why error) {
	o.env.Cache.Remove(o.indexKey(a.Revision, a.Digest))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spoiled[a.Digest] = why.Error() // in case that the cache cannot be changed
}

// spoiledBy says why nothing is to be copied from the artifact with this digest, "" if it may be.
func (o *Origin) spoiledBy(digest string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.spoiled[digest]
}

// compare returns which objects of the listing a was made of, and how many
// they are. What is remembered of a counts if its digest is the revision of a.
func (c *content) compare(a artifact.Artifact) (same []bool, count int) {
	text, err := c.origin.env.Cache.Open(c.origin.indexKey(a.Revision, a.Digest))
	if err != nil {
		return nil, 0
	}
	defer text.Close()
	list, sum := c.snapshot.list, sha256.New()
	same = make([]bool, list.len())
	lines := bufio.NewReaderSize(io.TeeReader(text, sum), maxLine)
	i, mine := 0, []byte(nil)
	for {
		line, err := lines.ReadSlice('\n')
		if err == io.EOF && len(line) == 0 {
			break
		}
		if err != nil {
			return nil, 0
		}
		key := line[:max(0, bytes.LastIndexByte(line, ' '))]
		for i < list.len() && list.key(i) < string(key) {
			i++
		}
		if i == list.len() || list.key(i) != string(key) || !list.kept(i) {
			continue
		}
		if mine = list.at(i).appendLine(mine[:0]); bytes.Equal(mine, line) {
			same[i] = true
			count++
		}
	}
	if "sha256:"+hex.EncodeToString(sum.Sum(nil)) != a.Revision {
		return nil, 0
	}
	return same, count
}

// maxLine bounds a line of the text of a revision.
const maxLine = maxPath + maxTag + 2
