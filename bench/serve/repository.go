package main

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
)

// A repository has one branch with one commit of a few files. All its answers are
// prepared in advance.
type repository struct {
	name   string
	commit string // hexadecimal
	refs   []byte // answer to ls-refs for the branch
	pack   []byte // answer to fetch
}

const (
	typeCommit = 1
	typeTree   = 2
	typeBlob   = 3
)

// An item is an object of Git.
type item struct {
	kind    int
	content []byte
}

var kinds = map[int]string{typeCommit: "commit", typeTree: "tree", typeBlob: "blob"}

// id returns the SHA-1 object id.
func (o item) id() [sha1.Size]byte {
	return sha1.Sum(append(fmt.Appendf(nil, "%s %d\x00", kinds[o.kind], len(o.content)), o.content...))
}

// newRepository returns a repository whose content depends on its name.
func newRepository(name string) *repository {
	var tree bytes.Buffer
	items := []item{{typeTree, nil}}
	for i := range 8 {
		blob := item{typeBlob, bytes.Repeat(fmt.Appendf(nil, "kind: ConfigMap # %s %d\n", name, i), 40)}
		id := blob.id()
		fmt.Fprintf(&tree, "100644 file-%d.yaml\x00%s", i, id[:])
		items = append(items, blob)
	}
	items[0].content = tree.Bytes()
	root := items[0].id()
	who := "bench <bench@example.org> 1767225600 +0000"
	commit := item{typeCommit, fmt.Appendf(nil, "tree %x\nauthor %s\ncommitter %s\n\n%s\n", root, who, who, name)}
	items = append([]item{commit}, items...)
	head := commit.id()
	r := &repository{name: name, commit: hex.EncodeToString(head[:])}
	r.refs = append(pktLine(r.commit+" refs/heads/main\n"), "0000"...)
	r.pack = append(pktLine("packfile\n"), sideband(packOf(items))...)
	return r
}

// packOf returns a pack without deltas (gitformat-pack).
func packOf(items []item) []byte {
	b := bytes.NewBuffer(fmt.Appendf(nil, "PACK\x00\x00\x00\x02\x00\x00%c%c", len(items)>>8, len(items)&255))
	for _, o := range items {
		size := len(o.content)
		head := byte(o.kind<<4 | size&15)
		for size >>= 4; size > 0; size >>= 7 {
			b.WriteByte(head | 0x80)
			head = byte(size & 127)
		}
		b.WriteByte(head)
		z := zlib.NewWriter(b)
		z.Write(o.content)
		z.Close()
	}
	sum := sha1.Sum(b.Bytes())
	return append(b.Bytes(), sum[:]...)
}

// pktLine returns a pkt-line.
func pktLine(text string) []byte { return fmt.Appendf(nil, "%04x%s", len(text)+4, text) }

// sideband returns content in sideband 1, followed by a flush packet.
func sideband(content []byte) (out []byte) {
	for len(content) > 0 {
		n := min(len(content), 65000)
		out = append(out, pktLine("\x01"+string(content[:n]))...)
		content = content[n:]
	}
	return append(out, "0000"...)
}
