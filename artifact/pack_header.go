package artifact

import (
	"archive/tar"
	"bytes"
)

// The modes of the normal form (reference A6).
const (
	modeDir  = 0o750
	modeFile = 0o600
	modeExec = 0o700
)

// tarBlock is the unit of the tar format.
const tarBlock = 512

// tarEnd is the end-of-archive marker.
var tarEnd [2 * tarBlock]byte

// padding returns how many bytes fill a file's last block.
func padding(size int64) int { return int(-size & (tarBlock - 1)) }

// The fields of a USTAR header in which entries differ.
const (
	nameSize   = 100 // at 0
	modeOffset = 100
	sizeOffset = 124
	sumOffset  = 148
	typeOffset = 156
)

// ustar is the header that those fields are put into. Numbers are octal; the
// checksum is spaces, as it counts towards itself.
var ustar = func() (header [tarBlock]byte) {
	for offset, text := range map[int]string{
		modeOffset: "0000000\x00",
		108:        "0000000\x00",     // user
		116:        "0000000\x00",     // group
		sizeOffset: "00000000000\x00", //
		136:        "00000000000\x00", // modification time
		sumOffset:  "        ",        //
		257:        "ustar\x0000",     // magic and version
		329:        "0000000\x00",     // device, major
		337:        "0000000\x00",     // device, minor
	} {
		copy(header[offset:], text)
	}
	return header
}()

// appendHeader appends the header of an entry to data. It is the one that
// archive/tar makes: USTAR where that can hold the values, PAX where not. The
// simple ones, nearly all, are made here: that takes a third of the time and no
// memory.
func appendHeader(data []byte, name string, mode, size int64) ([]byte, error) {
	kind := byte(tar.TypeReg)
	if mode == modeDir {
		kind = tar.TypeDir
	}
	if len(name) > nameSize || !isText(name) || size >= 1<<(3*11) {
		var header bytes.Buffer
		err := tar.NewWriter(&header).WriteHeader(&tar.Header{Typeflag: kind, Name: name, Mode: mode, Size: size})
		return append(data, header.Bytes()...), err
	}
	data = append(data, ustar[:]...)
	header := data[len(data)-tarBlock:]
	copy(header, name)
	putOctal(header[modeOffset:][:7], mode)
	putOctal(header[sizeOffset:][:11], size)
	header[typeOffset] = kind
	var sum int64
	for _, b := range header {
		sum += int64(b)
	}
	putOctal(header[sumOffset:][:6], sum)
	header[sumOffset+6] = 0
	return data, nil
}

// putOctal fills field with the digits of n.
func putOctal(field []byte, n int64) {
	for i := len(field) - 1; i >= 0; i-- {
		field[i] = '0' + byte(n&7)
		n >>= 3
	}
}

// isText reports whether s can stand in a USTAR header: ASCII without NUL.
func isText(s string) bool {
	for i := range len(s) {
		if s[i] == 0 || s[i] >= 0x80 {
			return false
		}
	}
	return true
}
