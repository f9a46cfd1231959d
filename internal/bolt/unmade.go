package bolt

import (
	"bytes"
	"io"
	"os"
)

// sector is what a disk writes whole or not at all, in bytes.
const sector = 512

// unmade reports whether a file was never made completely: a crash came when the
// library wrote what a new file has, so that sectors of it are zero or missing.
// There was no transaction before that, so nothing is in it.
func unmade(f *os.File) bool {
	image := fresh(os.Getpagesize())
	text := make([]byte, len(image)+1)
	n, err := f.ReadAt(text, 0)
	if err != io.EOF || n > len(image) || n%sector != 0 {
		return false
	}
	zero := make([]byte, sector)
	for at := 0; at < n; at += sector {
		got := text[at : at+sector]
		if !bytes.Equal(got, zero) && !bytes.Equal(got, image[at:at+sector]) {
			return false
		}
	}
	return true
}

// fresh returns what is in a new file: two metas, an empty list of free pages,
// and an empty root.
func fresh(pageSize int) []byte {
	kinds := []uint16{kindMeta, kindMeta, kindFreelist, kindLeaf}
	image := make([]byte, len(kinds)*pageSize)
	for id, kind := range kinds {
		page := image[id*pageSize:]
		order.PutUint64(page, uint64(id))
		order.PutUint16(page[8:], kind)
		if kind != kindMeta {
			continue
		}
		m := page[headerSize : headerSize+metaSize]
		order.PutUint32(m, magic)
		order.PutUint32(m[4:], version)
		order.PutUint32(m[8:], uint32(pageSize))
		order.PutUint64(m[16:], 3) // the root
		order.PutUint64(m[32:], 2) // the free pages
		order.PutUint64(m[40:], uint64(len(kinds)))
		order.PutUint64(m[48:], uint64(id)) // the transaction
		order.PutUint64(m[56:], sumOf(m))
	}
	return image
}
