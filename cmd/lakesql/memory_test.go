package main

import "testing"

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"2GiB": 2 << 30, "2g": 2 << 30, "300MiB": 300 << 20, "1073741824": 1 << 30, "1t": 1 << 40,
		"": 0, "x": 0, "-1g": 0, "1.5g": 0, "100MiB": 0, "9999999999t": 0, "2gg": 0,
	} {
		got, err := parseSize(text)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
}

func TestPlanMemory(t *testing.T) {
	p := planMemory(0, 10<<30)
	if p.goal != memoryGoal || p.guard != 8<<30 || p.cache != 0 || p.hot != 0 || p.tx != 0 {
		t.Error(p)
	}
	p = planMemory(600<<20, 10<<30)
	if p.goal != 450<<20 || p.guard != 540<<20 || p.cache != 100<<20 || p.tx != 75<<20 || p.hot != 600<<20 {
		t.Error(p)
	}
	if machineMemory() < 0 {
		t.Error("less than no memory")
	}
}
