package storage

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
)

const (
	baseSuffix = ".parquet"
	logInfix   = ".log."
	cdcSuffix  = ".cdc"
)

// BaseFileName gives the name of the base file that instant t writes for a file group.
func BaseFileName(id FileID, token string, t InstantTime) string {
	return string(id) + "_" + token + "_" + string(t) + baseSuffix
}

// LogFileName gives the name of log number version (from 1) of the slice that begins at base.
func LogFileName(id FileID, base InstantTime, version int, token string) string {
	return "." + string(id) + "_" + string(base) + logInfix + strconv.Itoa(version) + "_" + token
}

// ParseFileName takes the last part of an object's name apart. It answers false for whatever is no base file
// (parquet) and no log file; Size of the result is 0.
func ParseFileName(name string) (FileName, bool) {
	if strings.HasPrefix(name, ".") {
		return parseLogName(name)
	}
	stem, ok := strings.CutSuffix(name, baseSuffix)
	if !ok {
		return FileName{}, false
	}
	// Hudi cuts at underscores, so a file id has none.
	parts := strings.Split(stem, "_")
	if len(parts) != 3 || !isWord(parts[0]) || !isWord(parts[1]) || !isDigits(parts[2]) {
		return FileName{}, false
	}
	return FileName{Name: name, ID: FileID(parts[0]), Token: parts[1], Instant: InstantTime(parts[2])}, true
}

func parseLogName(name string) (FileName, bool) {
	at := strings.LastIndex(name, logInfix)
	if at < 1 {
		return FileName{}, false
	}
	front, tail := name[1:at], name[at+len(logInfix):]
	cut := strings.LastIndexByte(front, '_')
	if cut <= 0 || !isDigits(front[cut+1:]) {
		return FileName{}, false
	}
	f := FileName{Name: name, ID: FileID(front[:cut]), Instant: InstantTime(front[cut+1:])}
	number, token, hasToken := strings.Cut(tail, "_")
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || !isDigits(number) {
		return FileName{}, false
	}
	f.Version = n
	if !hasToken {
		return f, true
	}
	// Hudi's own pattern takes any character in front of "cdc".
	if len(token) > len(cdcSuffix) && strings.HasSuffix(token, cdcSuffix[1:]) {
		f.CDC, token = true, token[:len(token)-len(cdcSuffix)]
	}
	if !isToken(token) {
		return FileName{}, false
	}
	f.Token = token
	return f, true
}

// NewFileID makes the id of a new file group: a random UUID and "-0".
func NewFileID() FileID {
	var b [16]byte
	rand.Read(b[:])
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	h := hex.EncodeToString(b[:])
	return FileID(h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:] + "-0")
}

// A token has to be unique for each attempt to write a file: the stage is this process's, the attempt counts.
var (
	tokenStage = func() uint32 {
		var b [4]byte
		rand.Read(b[:])
		return binary.BigEndian.Uint32(b[:]) >> 1 // Hudi reads the parts as Java ints
	}()
	tokenAttempt atomic.Uint32
)

// NewToken makes a write token whose first number is n; no two of them are equal within a process.
func NewToken(n int) string {
	return fmt.Sprintf("%d-%d-%d", n, tokenStage, tokenAttempt.Add(1)&0x7fffffff)
}

func isDigits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

func isWord(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' {
			return false
		}
	}
	return s != ""
}

func isToken(s string) bool {
	parts := strings.Split(s, "-")
	return len(parts) == 3 && isDigits(parts[0]) && isDigits(parts[1]) && isDigits(parts[2])
}
