package object_test

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	gogit "github.com/go-git/go-git/v5/plumbing/object"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/internal/testenv"
)

// Read refuses an object of another type or with too many bytes.
func TestRead(t *testing.T) {
	d := newDatabase()
	id := d.add(object.Blob, "hello")
	if b, err := object.Read(d, id, object.Blob, 5); err != nil || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := object.Read(d, id, object.Blob, 4); err == nil || !strings.Contains(err.Error(), "more than the 4") {
		t.Errorf("too large: %v", err)
	}
	if _, err := object.Read(d, id, object.Tree, 5); !errors.Is(err, object.ErrCorrupt) {
		t.Errorf("wrong type: %v", err)
	}
}

const (
	hexA = "0123456789abcdef0123456789abcdef01234567"
	hexB = "89abcdef0123456789abcdef0123456789abcdef"
)

const signedCommit = "tree " + hexA + "\n" +
	"parent " + hexB + "\n" +
	"parent " + hexA + "\n" +
	"author Jane Doe <jane@example.com> 1700000000 +0130\n" +
	"committer C <> 1700000001 -0800\n" +
	"gpgsig -----BEGIN PGP SIGNATURE-----\n \n abc\n -----END PGP SIGNATURE-----\n" +
	"gpgsig-sha256 of the other format\n" +
	"mergetag object " + hexA + "\n type commit\n" +
	"encoding ISO-8859-1\n" +
	"\n" +
	"\nSubject on\ntwo lines\n\nBody\n"

func TestParseCommit(t *testing.T) {
	c, err := object.ParseCommit([]byte(signedCommit))
	must(t, err)
	if c.Tree.String() != hexA || len(c.Parents) != 2 || c.Parents[0].String() != hexB || c.Parents[1].String() != hexA {
		t.Errorf("tree %v, parents %v", c.Tree, c.Parents)
	}
	testenv.Equal(t, c.Time().Format(time.RFC3339), "2023-11-14T22:13:21Z", "time")
	testenv.Equal(t, c.Subject(), "Subject on two lines", "subject")
	if want := "-----BEGIN PGP SIGNATURE-----\n\nabc\n-----END PGP SIGNATURE-----"; string(c.PGPSignature) != want {
		t.Errorf("signature %q", c.PGPSignature)
	}
	from, to := strings.Index(signedCommit, "gpgsig "), strings.Index(signedCommit, "mergetag")
	testenv.Equal(t, string(c.Payload), signedCommit[:from]+signedCommit[to:], "payload")
}

func TestParseUnsignedCommit(t *testing.T) {
	data := "tree " + hexA + "\nauthor broken\ncommitter A <a@b> 99999999999999999999 +9999\n\n"
	c, err := object.ParseCommit([]byte(data))
	must(t, err)
	if c.PGPSignature != nil || string(c.Payload) != data || c.Subject() != "" || !c.Time().IsZero() {
		t.Errorf("got %+v", c)
	}
}

// TestParseCommitSHA256 checks that the signature for the repository's own format is
// used.
func TestParseCommitSHA256(t *testing.T) {
	long := hexA + strings.Repeat("ab", 12)
	c, err := object.ParseCommit([]byte("tree " + long + "\nauthor A <a> 1 +0000\ncommitter A <a> 1 +0000\ngpgsig other\ngpgsig-sha256 own\n\nx"))
	if err != nil || string(c.PGPSignature) != "own" || c.Tree.Format() != object.SHA256 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestParseCommitHostile(t *testing.T) {
	people := "author A <a> 1 +0000\ncommitter A <a> 1 +0000\n"
	tree := "tree " + hexA + "\n"
	for name, data := range map[string]string{
		"empty":                   "",
		"blank":                   "\n",
		"no tree":                 people + "\nx",
		"tree after the author":   people + tree,
		"short tree id":           "tree 0123\n" + people,
		"tree id not hexadecimal": "tree " + strings.Repeat("x", 40) + "\n" + people,
		"huge tree id":            "tree " + strings.Repeat("a", 1<<20) + "\n" + people,
		"parent of other format":  tree + "parent " + strings.Repeat("a", 64) + "\n" + people,
		"parent after the author": tree + people + "parent " + hexA + "\n",
		"no author":               tree + "committer A <a> 1 +0000\n\n",
		"no committer":            tree + "author A <a> 1 +0000\n\n",
		"NUL in the header":       tree + "author A\x00 <a> 1 +0000\ncommitter A <a> 1 +0000\n\n",
		"NUL in a continuation":   tree + people + "gpgsig a\n b\x00\n\n",
		"truncated header":        tree + "author A <a> 1 +0000\ncommitter A <a> 1 +0000",
		"truncated continuation":  tree + people + "gpgsig a\n b",
		"line without a value":    tree + people + "gpgsig\n\n",
		"line without a key":      tree + " x\n" + people,
		"two signatures":          tree + people + "gpgsig a\ngpgsig b\n\n",
	} {
		if c, err := object.ParseCommit([]byte(data)); !errors.Is(err, object.ErrCorrupt) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

func TestParseTag(t *testing.T) {
	payload := "object " + hexA + "\ntype commit\ntag v1.0\ntagger T <t@example.com> 1700000000 +0000\nextra\tfield x\n\n" +
		"Release\n-----BEGIN SSH SIGNATURE-----\nquoted\n"
	signature := "-----BEGIN PGP SIGNATURE-----\nabc\n-----END PGP SIGNATURE-----\n"
	g, err := object.ParseTag([]byte(payload + signature))
	must(t, err)
	if g.Object.String() != hexA || g.Type != object.Commit || g.Name != "v1.0" {
		t.Errorf("got %+v", g)
	}
	if string(g.PGPSignature) != signature || string(g.Payload) != payload {
		t.Errorf("signature %q, payload %q", g.PGPSignature, g.Payload)
	}
	old, err := object.ParseTag([]byte("object " + hexA + "\ntype blob\ntag v0\n"))
	if err != nil || old.Type != object.Blob || old.PGPSignature != nil {
		t.Errorf("%+v, %v", old, err)
	}
}

func TestParseTagHostile(t *testing.T) {
	for name, data := range map[string]string{
		"empty":            "",
		"only a signature": "-----BEGIN PGP SIGNATURE-----\n",
		"no object":        "type commit\ntag x\n\n",
		"bad object":       "object 12\ntype commit\ntag x\n\n",
		"no type":          "object " + hexA + "\ntag x\n\n",
		"unknown type":     "object " + hexA + "\ntype ofs-delta\ntag x\n\n",
		"no name":          "object " + hexA + "\ntype commit\n\n",
		"broken header":    "object " + hexA + "\ntype commit\ntag x\nbroken\n\n",
	} {
		if g, err := object.ParseTag([]byte(data)); !errors.Is(err, object.ErrCorrupt) {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
	}
}

func TestTreeHostile(t *testing.T) {
	id, _ := object.ParseID(hexA)
	file := func(names ...string) (data string) {
		for _, n := range names {
			data += entry("100644", n, id)
		}
		return data
	}
	for name, data := range map[string]string{
		"dot":                       file("."),
		"dot dot":                   file(".."),
		"empty name":                file(""),
		"slash":                     file("a/b"),
		"dot git":                   file(".git"),
		"dot git in capitals":       file(".GiT"),
		"dot git folder":            entry("40000", ".git", id),
		"dot git with a dot":        file(".git."),
		"dot git with spaces":       file(".git . "),
		"dot git stream":            file(".git::$INDEX_ALLOCATION"),
		"dot git and backslash":     file(`.git\config`),
		"dot git short name":        file("GIT~1"),
		"dot git with joiner":       file(".g\u200cit"),
		"dot git with byte order":   file("\ufeff.git"),
		"truncated id":              file("a")[:20],
		"truncated name":            "100644 abc",
		"null id":                   entry("100644", "a", object.ID{}) + strings.Repeat("\x00", 20),
		"no mode":                   entry("", "a", id),
		"mode not octal":            entry("100648", "a", id),
		"mode of a device":          entry("020000", "a", id),
		"mode of 20 digits":         entry("00000000000000100644", "a", id),
		"mode beyond 16 bits":       entry("1100644", "a", id),
		"out of order":              file("b", "a"),
		"twice":                     file("a", "a"),
		"folder out of order":       entry("40000", "a", id) + file("a.b"),
		"file longer, out of order": file("ab", "a"),
	} {
		if _, err := object.TreeEntries([]byte(data), object.SHA1); !errors.Is(err, object.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	fine := file(".gitignore", ".gitmodules", "a", `a\b`, "git", "git~10") + entry("160000", "z", id)
	entries, err := object.TreeEntries([]byte(fine), object.SHA1)
	if err != nil || len(entries) != 7 || entries[0].ID != id {
		t.Errorf("%+v, %v", entries, err)
	}
}

// TestHasherCollision hashes a message that was published with another one of
// the same SHA-1 (Leurent and Peyrin, "SHA-1 is a Shambles", 2020).
func TestHasherCollision(t *testing.T) {
	data, err := os.ReadFile("testdata/sha-mbles-1.bin")
	must(t, err)
	h := object.NewHasher(object.SHA1)
	h.Write(data)
	if id, err := h.ID(); !errors.Is(err, object.ErrCorrupt) || !strings.Contains(err.Error(), "collide") {
		t.Errorf("%v, %v", id, err)
	}
}

// FuzzObjects compares with go-git: objects that go-git writes are accepted here, and
// go-git reads the trees that are accepted here.
func FuzzObjects(f *testing.F) {
	d, root := sample()
	f.Add([]byte(signedCommit), "a subject\n\nand more", "v1.0", int64(1700000000))
	f.Add([]byte("object "+hexA+"\ntype commit\ntag v1.0\ntagger T <t> 1 +0000\n\nx\n-----BEGIN PGP SIGNATURE-----\n"), "", "", int64(0))
	f.Add([]byte(d.Database[root].Data), "x", "y", int64(-1))
	f.Fuzz(func(t *testing.T, data []byte, message, name string, when int64) {
		checkParsers(t, data)
		if strings.ContainsAny(name, "\n<>\x00") || strings.TrimSpace(name) != name || name == "" || when < 0 || when > 1<<37 || strings.Contains(message, "-----BEGIN") {
			return
		}
		signature := gogit.Signature{Name: name, Email: "e", When: time.Unix(when, 0).UTC()}
		hash := plumbing.ComputeHash(plumbing.BlobObject, data)
		commit := gogit.Commit{Author: signature, Committer: signature, Message: message, TreeHash: hash, ParentHashes: []plumbing.Hash{hash, hash}, PGPSignature: "sig\n"}
		c, err := object.ParseCommit(encoded(t, &commit))
		if err != nil || c.Tree.String() != hash.String() || len(c.Parents) != 2 || c.Parents[1] != c.Tree || c.Time().Unix() != when || c.Message != message || string(c.PGPSignature) != "sig" {
			t.Errorf("commit %+v, %v", c, err)
		}
		commit.PGPSignature = ""
		if err == nil && string(c.Payload) != string(encoded(t, &commit)) {
			t.Errorf("payload %q", c.Payload)
		}
		tag := gogit.Tag{Name: name, Tagger: signature, Message: message, TargetType: plumbing.TagObject, Target: hash}
		g, err := object.ParseTag(encoded(t, &tag))
		if err != nil || g.Name != name || g.Object.String() != hash.String() || g.Type != object.Tag || g.PGPSignature != nil {
			t.Errorf("tag %+v, %v", g, err)
		}
	})
}

func encoded(t *testing.T, o gogit.Object) []byte {
	m := new(plumbing.MemoryObject)
	must(t, o.Encode(m))
	r, _ := m.Reader()
	b, _ := io.ReadAll(r)
	return b
}

// checkParsers parses any bytes as an object of each type.
func checkParsers(t *testing.T, data []byte) {
	if c, err := object.ParseCommit(data); err == nil {
		if c.Subject(); len(c.Payload) > len(data) || c.PGPSignature == nil && string(c.Payload) != string(data) {
			t.Errorf("payload %q of %q", c.Payload, data)
		}
	} else if !errors.Is(err, object.ErrCorrupt) {
		t.Error(err)
	}
	if g, err := object.ParseTag(data); err == nil {
		if string(g.Payload)+string(g.PGPSignature) != string(data) {
			t.Errorf("payload %q and signature %q of %q", g.Payload, g.PGPSignature, data)
		}
	} else if !errors.Is(err, object.ErrCorrupt) {
		t.Error(err)
	}
	if _, err := object.TreeEntries(data, object.SHA256); err != nil && !errors.Is(err, object.ErrCorrupt) {
		t.Error(err)
	}
	entries, err := object.TreeEntries(data, object.SHA1)
	if err != nil {
		if !errors.Is(err, object.ErrCorrupt) {
			t.Error(err)
		}
		return
	}
	m := new(plumbing.MemoryObject)
	m.SetType(plumbing.TreeObject)
	m.Write(data)
	var tree gogit.Tree
	if err := tree.Decode(m); err != nil || len(tree.Entries) != len(entries) {
		t.Fatalf("go-git reads %v, %v", tree.Entries, err)
	}
	for i, e := range tree.Entries {
		if o := entries[i]; o.Name != e.Name || o.ID.String() != e.Hash.String() || o.Mode.IsDir() != (e.Mode&0o170000 == 0o040000) {
			t.Errorf("go-git reads %+v in place of %+v", e, o)
		}
	}
}
