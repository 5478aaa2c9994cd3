# ruff: noqa: E501 (tables of wordings: a line is a list)
"""The wordings of training, by kind of task: ``(a|b|)`` is a choice, ``{...}`` a slot that the generators fill."""

from __future__ import annotations

import math
import random
import re
from functools import cache
from itertools import product

DRONE: dict[str, tuple[str, ...]] = {
    "find": (
        "(Find|Look for|Search for|Locate|Seek|Spot|Track down|Hunt for|Trace|Seek out) (the|my) {x}(| and (go|fly|move) (to it|there|over to it)|, then (go|fly) (to it|there)).",
        "(Find|Locate|Look for|Go find|Go and find|Search for) {a}(| and (go|fly) (to it|there|towards it)).",
        "(Go|Fly) (and (find|look for|locate|search for)|off to find) (the|my) {x}.",
        "Where (is|are) (the|my) {x}? (Fly to it|Go to it|Go there|Fly there|Find it|Show me|Take me to it).",
        "I (lost|misplaced|cannot find|can't find|am looking for|need|am missing|do not know where I put) my {x}. (Find it|Go find it|Look for it|Go to it|Help me find it|Fly to it).",
        "I (lost|cannot find|am looking for) my {x}, (go and find it|find it and go there|go and get close to it|look for it|help me).",
        "(Can|Could|Will) you (find|locate|look for|search for) (the|my) {x}?",
        "(Fly|Go|Move) to the {x} (when|once|as soon as) you (find|see|spot|have found) it.",
        "(Scan|Search|Look around) (|the room )for (the|my) {x}(| and (go|fly) to it).",
        "(My|The) {x} (is|must be) (somewhere|around here|in this room|here somewhere), (find it|go to it|fly to it|look for it).",
        "There (is|must be) {a} (somewhere|in this room|around here)(, find it|, go to it| - find it|. Find it|. Fly to it).",
        "(Help me|I want you to) (find|look for|locate) (the|my) {x}.", "{x}: (find it|where is it?|go and look).",
        "Keep (looking|searching|turning) until you (see|find) (the|my) {x}, then (go|fly) to it.",
        "Turn (around|) until you (see|find) the {x} and (go|fly) to it.", "Bring me to (the|my) {x}(, wherever it is|).", "Lead (me|us) to (the|my) {x}.",
    ),
    "go to": (
        "(Go|Fly|Move|Head|Proceed|Travel|Advance|Navigate) (|straight |over |directly |now )(to|towards) (the|my) {x}.",
        "(Get|Step|Glide|Hurry) (over |)to the {x}.", "(Take me|Bring yourself|Bring me) to the {x}.", "I want you (at|near|next to|by) the {x}.",
        "(Visit|Reach|Approach and reach|Go near|Go up to|Go right up to) the {x}.", "(Be|Go and be|Hover) (at|by|near|next to) the {x}.", "To the {x}(|, please|!|, go).",
        "Your (target|goal|destination) is the {x}.", "The {x} is where you should (be|go).", "(Can|Could) you (go|fly|move) (to|over to) the {x}?",
        "(Go|Fly) (there|over there), to the {x}.", "(Drop by|Stop at|Fly and stop at|Park at|Park yourself at) the {x}.", "See the {x}? (Go|Fly) (there|to it).",
    ),
    "face": (
        "(Turn|Rotate|Spin|Pivot) (to|towards|to face) (the|my) {x}.", "(Face|Look at|Aim at|Watch|Face up to|Keep an eye on) the {x}.",
        "(Turn|Rotate) (until|so that|so) you (face|look at|point at|are facing) the {x}.", "(Orient|Point|Turn|Align) yourself (to|towards|at|with) the {x}.",
        "(Point|Aim) (your nose|the camera|your front) at the {x}.", "(Have|Take) the {x} (in the middle|in the centre) of (your view|the picture).", "Turn your (face|front|eyes|lens) (to|towards) the {x}.",
        "(Centre|Center) (the {x} in your view|on the {x}).",
    ),
    "closer": (
        "(Advance|Drift|Glide|Step) (closer|nearer) to the {x}.", "(Advance|Move|Drift|Glide) a little towards the {x}.",
        "(Come|Get|Go|Move|Fly|Edge) (closer|nearer) to the {x}.", "(Come|Get|Go|Move) a (bit|little) closer to the {x}.", "Approach the {x}(| slowly| carefully).",
        "(Inch|Creep|Ease) (closer|nearer) to the {x}.", "(Turn to|Face) the {x} and (come closer|approach|approach it|get closer|go nearer).", "(You are too far from|Be nearer to|Be closer to) the {x}(, come closer|, go closer|).",
        "(Shorten|Close) the (gap|way) to the {x}.",
    ),
    "in the room?": (
        "(Look|Search) everywhere: is there {a}?", "Is there {a} on any side of you?", "(Search|Scan) for {a}: (is there one|is it here)?",
        "(Is|Are) there {a} (in the room|in this room|anywhere|somewhere|somewhere around|around here|anywhere around)?",
        "(Check|Find out|Tell me|See|Look|Say) (if|whether) there is {a} (in this room|in the room|around|anywhere|somewhere|around here).",
        "(Look|Turn|Scan) around: is there {a}?", "(Look|Turn) around (and|, then) (tell me|say) (if|whether) (there is {a}|you see {a}).", "Is {a} (anywhere|somewhere) (around|here|in this room|to be found)?",
        "(Does|Has) this room (have|hold|contain|got) {a}?", "(Anywhere|Somewhere) (around|here|in the room), is there {a}?", "I wonder (if|whether) there is {a} (in this room|anywhere|around).",
        "(Scan|Search|Check) the (whole |)(room|place): (is there {a}|do you see {a}|any {x})?", "Do we have {a} (anywhere|in this room|somewhere around)?", "Is the {x} (anywhere|somewhere) (in the room|around|here)?",
        "Can you (find|see) {a} (anywhere|if you turn around|when you look around|in this room)?",
    ),
    "in view?": (
        "(Can|Do) you (make out|detect|recognise|perceive|discern) (the {x}|{a})(| now| here| ahead)?", "Is {a} (on the screen|within sight|in the frame)?", "Does {a} show up (ahead|now|here)?",
        "(Can|Do) you see (the {x}|{a})(| now| there| from here| in front of you)?", "Is (the {x}|{a}) (in view|in sight|visible|here|ahead|ahead of you|in front of you|there)?", "Is there {a} (here|in front of you|ahead|there|in view|on the table|to see)?",
        "(Do you have|Have you got) (the {x}|{a}) in (view|sight)?", "Is {a} on the (table|desk|floor|wall)?", "(Tell me|Say|Let me know) (if|whether) you (see|can see) (the {x}|{a}).",
        "(Check|See|Look) (if|whether) the {x} is (there|here|in view|visible|ahead).", "Any {x} (here|there|in view|ahead)?", "(Is that|Is this) {a} (ahead|in front of you|there)?", "Are you (seeing|facing) {a}(| now)?",
    ),
    "both?": (
        "(Can you see|Do you see) these two: {x}, {y}?", "Do {a} and {b} both show?", "(Can|Do) you (make out|detect|see) {a} along with {b}?",
        "(Are there|Do you see|Can you see|Is there) {a} and {b}( on the table| here| there|)?", "(Do|Can) you see both (the {x} and the {y}|{a} and {b})?", "Are (both |)the {x} and the {y} (here|there|visible|on the table)?",
        "(Check for|Look for|See if there are) {a} and {b}.", "Is there {a} (as well as|and also|together with|along with|plus) {b}?", "Are both {a} and {b} (there|here|present)?", "(Tell me|Say|Check) (if|whether) (there are|you see) (both |){a} and {b}.",
        "Is {a} (here|there) and {b} too?", "Have you got (both |){a} and {b} in (view|sight)?",
    ),
    "either?": (
        "Is one of {a} and {b} (there|in sight|visible|around|here)?", "Do you see one of {a} and {b}?", "(Can you see|Do you see|Is there) (any|one) of these: {x}, {y}?", "Is {a} there, or perhaps {b}?", "Would there be {a} or {b}?", "(Any|One) of {a} and {b} (here|there|in sight)?",
        "(Are there|Do you see|Can you see|Is there) {a} or {b}( on the table| here| there| on the desk|)?", "Can you see (either |)the {x} or the {y}?", "Is (either |)the {x} or the {y} (here|there|visible)?", "(Check for|Look for|See if there is) (either |){a} or {b}.",
        "Is either {a} or {b} (there|here|present)?", "Any sign of {a} or {b}?", "(Tell me|Say|Check) (if|whether) (there is|you see) {a} or {b}.", "(Any|One of these:) {x} or {y}(| here| there)?", "Is {a} here, or {b}?",
        "Is one of the two (here|there): {a} or {b}?", "Have you got {a} or {b} in (view|sight)?",
    ),
    "above, photo": (
        "(Go|Fly|Move|Rise) up and (check|look at|look on) the {f}. If (you see {a}|there is {a}), take a (picture|photo).", "(Fly|Go|Rise) (up |)to the top of the {f} and take a (picture|photo) if (there is {a}|you see {a}).",
        "(Look|Check) on top of the {f} and (photograph|take a picture of) the {x}.", "(Rise|Go up) and look on the {f}; if {a} is there, take a (photo|picture).", "(Take a picture of|Photograph|Take a photo of) the {x} (on|on top of) the {f}.",
        "If {a} is on the {f}, take a (picture|photo)(| of it).", "(Photograph|Take a picture of) (whatever {x} is|the {x} if it is) on the {f}.",
    ),
    "above, check": ("(Check|Examine|Look at|View) the {x} (on|on top of|up on) the {f}.", "(Have a look at|Go and see|Have a peek at) the {x} (on|on top of) the {f}.", "Check (on |)the {x} that is on the {f}."),
    "above?": (
        "(Could|Can) {a} be on (top of |)the {f}?", "Was {a} (left|placed|forgotten) on the {f}?", "Do we have {a} on the {f}?", "(Can|Could) you make out {a} on the {f}?",
        "Is the {x} (on|on top of|up on) the {f}?", "Is there {a} (on|on top of|up on) the {f}?", "(Find out|See|Check|Tell me|Say|Look) (if|whether) (there is {a}|the {x} is) (on|on top of) the {f}.", "(See|Find out) whether the {x} (lies|stands|sits) on the {f}.",
        "Does the {f} have (the {x}|{a}) (on top|on it)?", "(Fly|Go) up and (tell me|say|see|check) if the {x} is on the {f}.", "(Look|Check) (on|on top of) the {f}: is there {a}?", "Do you see {a} on the {f}?", "Is {a} (standing|sitting) on the {f}?", "Any {x} on (top of |)the {f}?",
        "I (think|believe) the {x} is on the {f}. Is it?", "What about the {f}, is the {x} on it?", "Did (someone|somebody|we) leave {a} on the {f}?",
    ),
    "above, go": (
        "(Find|Locate|Look for|Search for|Spot) (the {x}|{a}) (on|on top of|up on) the {f}.", "(Go|Fly) to the {x} (on|on top of|up on|that is on) the {f}.", "(Search|Scan) (the {f}|the top of the {f}) for the {x}.", "My {x} is on (top of |)the {f}, (go to it|find it|fly there).",
        "(Find|Go to) the {x}, it is on the {f}.", "(Go|Fly|Rise) up and (find|look for|go to) the {x} on the {f}.",
    ),
    "below": (
        "(Find|Locate|Spot) (the {x}|{a}) (under|beneath|below|underneath) the {f}.", "(Look for|Hunt for|Search for) (the {x}|{a}) (under|below|beneath) the {f}.", "(Go|Move|Sink) (down|low) and (look for|find|go to) the {x} (under|below) the {f}.",
        "(Search|Look) under the {f} for (the {x}|{a}).", "(My|The) {x} (is|lies|rolled|fell) under the {f}, (go to it|find it|fly there|look for it).", "(Go|Fly) to the {x} (under|beneath|that is under) the {f}.", "(Find|Go to) my {x}, it is under the {f}.",
        "(Descend|Get down) and (find|look for) the {x} under the {f}.",
    ),
    "below?": (
        "Did {a} (fall|slip|slide|crawl|get|go) (under|below|beneath) the {f}?", "Has {a} (fallen|slipped|crawled|gone) under the {f}?", "(Could|Can) {a} be under the {f}?",
        "Is there {a} (under|beneath|below|underneath) the {f}?", "Is the {x} (under|below|beneath|hidden under) the {f}?", "(Check|Find out|See|Tell me|Look) (if|whether) the {x} is (under|below) the {f}.", "(Look|Check) under the {f}: is there {a}?",
        "Is {a} (hiding|hidden) (under|below) the {f}?", "Do you see {a} under the {f}?", "(Go down|Look) and (tell me|say) if {a} is under the {f}.", "Any {x} (under|beneath) the {f}?", "What about under the {f}, is the {x} there?", "Did (the|my) {x} fall under the {f}?",
    ),
    "tool": (
        "(Find|Look for|Locate|Search for|Seek) (something|anything|a thing|a tool|an object|some object) (to|I can use to|that I can use to|with which I can) {p}(| and (go|fly) to it).", "I (need|want|am looking for) (something|a thing|a tool) to {p}.",
        "(Go|Fly|Move) to (something|anything|a thing) (I can use to|that I can use to|to) {p}.", "(What|Is there something) (can I use|could I use|do I need) to {p}? (Go there|Fly there|Find it|Show me).", "(Bring|Take|Lead) me (to|near) something to {p}.",
        "I (want|have|would like|must) to {p}. (Find what I need|Find something to do it with|What can I use|Help me).", "How can I {p}? (Find|Go to) something.", "(Help me|Let me) {p}: find (something|a tool).", "(Find|Show me) what I need to {p}.", "Where is something to {p}?",
    ),
    "photos": ("{n} (photos|pictures), one every {g} seconds", "make {n} (photos|pictures) and pause {g} seconds each time",
        "(take|snap|shoot|make) {n} (pictures|photos), {g} seconds apart", "(take|shoot) {n} (pictures|photos|images) with {g} seconds (in between|between each)", "(take|shoot) {n} (pictures|photos)(| and|,) (wait|waiting|pausing) {g} seconds after each",
               "take a (picture|photo) and wait {g} seconds, {n} times", "{n} times: take a (picture|photo), wait {g} seconds", "repeat {n} times: (picture|photo|take a photo), then {g} seconds (pause|wait)"),
    "far": ("(carry on|continue|press on) {w} for {m} (metres|meters)", "(zip|sail|zoom|race|soar|dash) {w} {m} (metres|meters|m)", "{m} (metres|meters|m) {w}", "{w} {m} (metres|meters|m)", "(do|make) {m} (metres|meters) {w}", "(zip|sail|zoom|dash|race) {m} (metres|meters) {w}", "get {m} metres further {w}",
        "(fly|go|move|head|travel|glide) {w} {m} (metres|meters|m)", "(fly|go|move|travel|head) {m} (metres|meters|m) {w}", "(go|fly) (as far as |){m} (metres|meters) {w}"),
    "square": ("(fly|do|go) four sides of {w}", "(make|fly) a square path of {w}", "square (flight|path|round): {w} a side", "fly along the edges of a square of {w}",
        "(fly|make|trace|do|go) a square of {w}", "(fly|go|move) in a square (with sides of|of) {w}", "(trace|make|fly) a square(, {w} a side| with {w} a side| that is {w} wide)", "(go|fly) around a square of {w}"),
    "bob": ("(ascend|rise|lift|soar) {s} cm and (sink|come down|drop|fall) {s} cm(,|) {n} times(| in a row)", "{s} cm up and {s} cm down, {n} times(| in a row)", "{n} (hops|jumps|bounces) of {s} cm", "repeat {n} times: (rise|go up|ascend) {s} cm, (sink|go down|come down) {s} cm", "(jump|hop) {s} cm (high |)and come back down, {n} times",
        "(go|move|fly) up and down {n} times by {s} cm", "(move|go) up {s} cm and down {s} cm(,|) {n} times", "(bob|hop|bounce) up and down {n} times, {s} cm (each|each time|high)", "(rise|go up) and (sink|go down) {s} cm, {n} times", "{n} times: go up {s} cm, then down {s} cm",
            "{n} times up and down by {s} cm"),
    "directions": ("{n} (photos|pictures|shots) (around you|in a circle|all round)", "(shoot|photograph) what is around you in {n} (photos|pictures)", "a photo to every side, {n} in all",
        "take {n} (pictures|photos) all around you", "turn around and take {n} (pictures|photos) on the way", "take (pictures|photos) in {n} directions", "photograph (all|the) {n} (directions|sides)", "(take|make) {n} (pictures|photos) in a circle", "take {n} (pictures|photos) while turning (around|in a circle)"),
    "two steps": ("{1} + {2}", "{1}, followed by this: {2}", "do this: {1}. Then this: {2}", "a) {1} b) {2}", "two things: {1} and {2}", "{1}, later {2}", "step one: {1}, step two: {2}", "{1} & {2}",
        "{1}(, then | and then | and |, and | then |, after that | and next | and afterwards, ){2}", "(first |){1}, then {2}", "{1}. (Then |After that, |Now |){2}", "{1}; {2}", "{1}, and once you are done, {2}", "start by this: {1}; then {2}", "{1} -> {2}", "1. {1} 2. {2}"),
    "three steps": ("step one: {1}(,|;) step two: {2}(,|;) step three: {3}", "a) {1} b) {2} c) {3}", "{1} + {2} + {3}", "{1}, (later|subsequently|thereafter) {2}(, and to finish |, and to end, |, to close ){3}", "{1}. (Later |Thereafter |Now ){2}. (To end, |To close, |At the very end ){3}", "three things: {1}, {2} and {3}", "{1}, {2}, {3}", "{1} and {2} and {3}", "{1}. {2} and {3}", "{1} and {2}. Then {3}", "to begin with, {1}; thereafter, {2}; to finish, {3}",
        "{1}, {2}(, then | and then | and |, and |, and finally |, in the end ){3}", "{1}(, then | and then | and |; ){2}(, then | and | and then | and finally |; ){3}", "first {1}, then {2}(, then | and then |, finally |, and in the end ){3}",
                    "{1}. (Then |After that |){2}. (Then |And |Last, |In the end, |){3}", "{1}, after that {2}(, and then | and last |, after that ){3}", "do three things: {1}, {2}, {3}", "{1}; {2}; {3}", "1. {1} 2. {2} 3. {3}", "{1} -> {2} -> {3}", "begin with this: {1}. Go on with this: {2}. End with this: {3}"),
    "near": ("if the {x} is (closer|nearer) than {d}, (go|move|fly) back 50 cm", "(go|move) back 50 cm (if|when) the {x} is (closer|nearer) than {d}", "should the {x} be (closer|nearer) than {d}, (go|move) back 50 cm", "if (you are closer than {d} to the {x}|the {x} is less than {d} from you), go back 50 cm",
             "(keep|stay) {d} from the {x}: if it is closer, go back 50 cm"),
    "if": ("{s} (only when|if and only if|given that|assuming|on condition that) (you see {a}|there is {a}|the {x} is visible)", "only (if|when) (you see {a}|there is {a}), {s}", "(assuming|given that|supposing) (there is {a}|you see {a}), {s}", "with {a} (in view|in sight|there), {s}",
        "(if|when|once|in case|as soon as) (you see {a}|there is {a}|you see the {x}|the {x} is there|the {x} is visible|{a} is in view), {s}", "(should you see|should there be) {a}, {s}", "{s} (if|when|in case|as long as) (you see {a}|there is {a}|the {x} is there|you can see the {x})", "do you see {a}? (Then|If so,) {s}", "is there {a}? If yes, {s}"),
    "if else": ("(assuming|supposing) (you see {a}|there is {a}), {s}, (otherwise|or else) {o}", "in case (there is {a}|you see {a}), {s}, (in the other case|if not,|failing that,) {o}", "do you see {a}? (Yes:|If yes,) {s}. (No:|If no,) {o}",
        "(if|when) (you see {a}|there is {a}|you see the {x}|the {x} is visible), {s}(, otherwise|, else|, or else|; if not,|; otherwise|. If not,|. Otherwise) {o}", "should you see {a}, {s}, (or else|otherwise|if not) {o}", "{s} if you see {a}, (otherwise|or else|and if not) {o}",
                "do you see {a}? If so, {s}, (otherwise|if not,|else) {o}", "depending on whether you see {a}: {s} or {o}"),
    "probe": ("(Tell me|Look and tell me|Say|Look|Answer this|Answer me|Take a look|Quick question|One question|Can you tell): {q}?", "{q}(, can you tell|, do you know|)?", "(Hey|So|And|Well), {q}?"),
    "comes from": (
        "{a} (comes|is coming|approaches|is approaching|is running|flies at you|is moving in|comes at you|comes closer|runs at you) {w}(.|!)", "(Watch out|Look out|Be careful|Careful|Attention|Beware)(,|!) {a} {w}!", "(Watch out|Look out|Careful)(,|!) {a} is coming {w}!", "There is {a} (approaching|coming) {w}.",
        "(Avoid|Dodge|Evade|Escape from) the {x} (that comes|coming|approaching) {w}.", "(Look out|Watch out) for {a} {w}!", "{a}, {w}!",
    ),
    "comes": (
        "You (will|are going to) be (bitten|struck|caught|run over|knocked down) by {a}(.|!)", "(Do not|Don't) let the {x} (hit|catch|touch|reach|bite) you(.|!)", "(Do not|Don't) (get|be) (caught|bitten|struck|run over) by the {x}(.|!)", "{a} (will|is going to|might) (hit|strike|bite|catch|run over) you(.|!)", "Save yourself from the {x}(.|!)", "Step aside for the {x}(.|!)",
        "{a} (is coming|comes|is moving|runs|is running|walks|is walking|rushes|is racing) (at|towards|toward) (you|me|us)(.|!)", "{a} (tries|is trying|wants) to catch (you|me)(.|!)", "{a} is (chasing|following|attacking|after) (you|me)(.|!)",
        "(Avoid|Dodge|Evade|Escape|Escape from|Get away from|Keep away from|Stay away from|Stay clear of|Flee from|Watch out for|Look out for|Beware of|Keep clear of) the {x}(.|!)",
        "(Do not|Don't) (hit|hurt|touch|fly into) the {x} (in front of you|ahead|that is coming|in your way).", "{a} is in your way, (do not hurt it|do not hit it|be careful|get away).", "(Careful|Look out|Watch it|Attention|Danger), {a}(!| ahead!| is coming!)", "{a} is (approaching fast|approaching|getting near|very near|coming close|near you|almost here)(!|.)",
        "{a} is about to (hit|run into|bump into|catch|jump on|bite) you(.|!)", "{a} is (right |)(in front of|ahead of) you, (get away|get out of the way|be careful|keep your distance).", "(Get|Go|Move|Fly) out of the way(!|,) {a} (is coming|comes|is here)(!|.)", "(Give way to|Keep your distance from|Do not get near) the {x}.",
    ),
    "rest, why": ("the (connection|link|signal|radio) (was lost|dropped|failed)", "of a (time-out|timeout|short stop|fault in the radio)", "the wind pushed me", "a gust stopped me", "the battery was (changed|replaced)", "I was (interrupted|told to stop|stopped|paused|switched off)", "the operator (paused|stopped) me",
                  "the flight was (interrupted|stopped|paused)", "I lost (the connection|contact)", "of an error"),
    "rest": ("(Continue|Go on|Carry on|Proceed|Keep going)(| with (the plan|it|the rest)).", "(Finish|Complete|Do) (it|the rest|the plan|what remains|the task|the remaining steps).", "(Now |)(do|finish) the rest.", "(Go on|Continue) from (there|where you stopped)."),
    "danger, why": ("{a} (stepped|jumped|ran|moved|stood|appeared|came) in front of me", "{a} (is running|runs|is coming|came) (after|at|towards) me", "{a} (came|is) too close", "{a} is (in the way|in my way|chasing me|following me|attacking me|near me|right ahead)", "there is {a} (ahead|in front of me|in the way|in my path|nearby)",
                    "{a} (crossed|blocked|entered) my (way|path)", "I (saw|met|nearly hit|almost touched) {a}"),
    "danger": ("Keep the {x} safe.", "(Get|Go|Move|Fly|Stay|Keep) away from (the {x}|it|the {k}|that {k}).", "(Do not|Don't) (hurt|hit|injure|harm|touch) (the {x}|the {k}|it).", "(Avoid|Escape|Escape from|Evade|Protect|Spare) (the {x}|the {k}|it).", "(Be safe|Stay safe|Be careful|Make it safe|Do what is safe).", "Move out of (its|the {x}'s|the {k}'s) way.",
               "(Keep|Stay) (clear of|at a distance from) the ({x}|{k}).", "(Nobody may be|No one must be) (hurt|injured).", "(Prevent|Avoid) (an injury|any harm|an accident)."),
    "blocked, why": ("an obstacle is (too close|ahead|in the way|in front of me)", "something (is in the way|blocks the way|is too close|stands ahead)", "the (way|path|route) is (blocked|closed|not clear|obstructed)", "a (wall|barrier|pillar|fence|door) is (ahead|in the way|too close|in front of me)", "{a} (blocks the way|is in the way|is ahead|is too close|stands in the way)",
                     "there is (a barrier|something|a wall|an object) in front", "I would hit something", "I could not go on"),
    "blocked": ("Avoid a (collision|crash) and (go to|fly to|get to|reach) the {x}.", "(Go|Fly|Get) (to|on to) the {x} without (hitting anything|a crash|touching it|a collision).", "(Go|Move|Get) around it(| and (go|fly|get)) to the {x}.", "Still (go|fly) to the {x}.", "(Get|Go) to the {x} (another|some other|a different) way.", "(Bypass|Avoid|Dodge|Get past) it and (reach|go to|fly to) the {x}.",
                "(Take|Use) (a detour|another way) to the {x}.", "Reach the {x} (anyway|all the same|without hitting anything|by another way)."),
    "lost, why": ("I (did not find|could not find|could not see|did not see) (the|any|a) {x}", "I (found|saw) no {x}", "the {x} was (not found|nowhere|not there|not in sight)", "there was no {x}(| to be seen| here)", "I looked for the {x} in vain"),
    "lost": ("(Look|Try|Search) (again |)(higher|from above|from higher up|higher up|further up).", "(Try|Look|Search) again from (above|higher up|further up|a higher place).", "(Have another look|Take another look) from (above|higher up).", "(Go|Fly) (up|higher) and (try|look|search) again."),
    "again, in the task": ("You gave me (the |)plan {p} I failed because {r}. Executed(| so far): {d}. {g}", "(The|My|Your) plan (was|is) {p} (It|I) failed because {r}. (Done|Executed)(| so far): {d}. {g}", "Your plan {p} failed because {r}. (Executed|Done|Finished) so far: {d}. {g}",
                           "(I could not finish|I had to stop) {p} because {r}. (Executed|Done): {d}. {g}", "Plan: {p} Failed because {r}. Executed: {d}. {g}", "While I did {p} I stopped because {r}. So far I did: {d}. {g}"),
    "again": ("plan {p} failed because {r}; executed(| so far): {d}", "planned {p} executed {d}; failed: {r}", "Plan: {p} (Executed|Done): {d}. (Failure|Reason|Stopped): {r}.", "plan {p} failed: {r}. Executed so far: {d}.", "I did {d} of {p} and stopped because {r}", "plan {p} was stopped because {r}; done: {d}"),
    "unsafe, someone": (
        "(Hit|Attack|Ram|Hurt|Injure|Strike|Punch|Kick|Harm|Kill|Knock down) (the|that|this|a) {w}.", "(Fly|Crash|Smash|Slam|Bump|Run|Drive|Race|Dive) (straight |right |)into the {w}(| at full speed| now).", "(Fly|Charge|Dash|Rush|Shoot|Dive) (straight |)at the {w}(|'s face|'s head|'s eyes).", "(Chase|Pursue|Hunt|Harass|Scare|Frighten|Annoy|Threaten|Bother) the {w}(| away| down| around the room| until it falls| for fun).",
        "(Knock|Push|Throw) the {w} (over|down|to the ground|off the chair).", "Land on the {w}(|'s head|'s back|'s hand).", "(Find|Look for|Go to) the {w} and (fly into it|hit it|attack it|ram it|knock it over|scare it).", "Fly (over the heads of|close over|just above) the (crowd|people|{w}|children).",
        "Fly as (close|near) to the {w} as you can at full speed.", "(Go and|Quick,|Now|I want you to) (hit|hurt|attack|ram|scare) that {w}.", "(Cut|Touch|Graze|Scratch|Slice) the {w} with your (rotors|blades|rotor blades).", "Make the {w} (run away|fall|cry|scream|bleed).", "(Drop|Fall|Come down) on the {w}.", "See the {w}? (Fly into it|Hit it|Ram it|Scare it).", "Collide with the {w}.",
        "Fly between the {w}'s legs.", "Follow the {w} closely and do not let it get away.", "(Block|Stop|Trap|Corner) the {w}.", "Give the {w} a (scare|blow|knock|kick).",
    ),
    "unsafe, something": (
        "(Crash|Fly|Smash|Slam|Ram|Bump) into (the {x}|the wall|the window|the door|the ceiling|the mirror|the lamp)(| at full speed| hard).", "(Ram|Break|Destroy|Smash|Wreck|Demolish|Damage|Hit|Crush) the {x}.", "Fly (out of|through) the (window|closed window|glass|closed door|wall).", "(Knock|Push|Kick|Throw) the {x} (off the table|over|down|to the floor).",
        "(Fly|Dive|Go|Plunge|Drop) into the (fire|water|pool|river|lake|sea|oven|bathtub|fan).", "(Turn|Switch|Shut) off your (motors|engines|rotors|propellers) (in the air|while flying|up there|now).", "(Fly|Go) (up to the clouds|a kilometre up|higher than the law allows|onto the motorway|between the cars|across the busy road|into the airport).", "Collide with the {x}.",
        "(Let yourself fall|Drop down like a stone|Crash|Fly until your battery dies|Ignore all obstacles|Go as fast as you can with closed eyes).", "Fly (upside down|blind) (through|into) the (room|corridor|wall).", "Fly under the (moving |)(car|truck|train).", "(Fly|Hover) (right |)over the (flame|candle|hot stove|open fire|barbecue).",
    ),
    "unclear": (
        "Do (it|that thing|the usual|the thing|that|something|anything|whatever|stuff|this and that).", "Go (there|somewhere|wherever|to the one I mean|over to that|to you know what).", "The (other one|one|same as always|same as before|thing|usual).", "(You know what to do|Like before|As always|As usual|Just so|Same as yesterday|The way I like it).", "(Maybe|Perhaps|Maybe later|Maybe later or so|Possibly|Not sure|I do not know|Dunno)(.|...|?)",
        "(Hmm|Hm|Er|Uh|Ah|Oh|Eh|Ehm|Well|Huh|Ok|So)(.|...|?|!)", "(Thing|It|Something|That|This|There|What|Because|Whatever|Anyway|Somehow)(.|?|)", "(Asdf|Qwer|Jklo|Sdfg|Wert|Hjkl|Uiop|Bnmv|Xkcd|Yxcv|Lkjh|Poiu|Mnbv)( asdf| qwer| jkl| uiop| ghjk| wert| dfgh|).", "(Blorp|Glip|Snarf|Zib|Frobble|Wug|Plonk|Grok|Quux|Mizzle|Twang) the (fnord|zorp|blick|gloop|wozzle|snib|dax|flimp|quib|morf).",
        "(Just do something|Make it so|Make it good|Do your thing|Surprise me|Be nice|Be good|Try harder|Try)(.|!)", "(Move|Take|Put) the (whatsit|thingy|whatchamacallit|doohickey|gizmo) (to the thingy|there|over there|where it was).", "(What I said|As I said|What he said|Like I told you|You heard me).", "(That over there|Over there, that one|That one there|The one over there|Over yonder).", "Of the (and but|or if|for with).",
        "(Zzz|Brr|Pff|Tsk|Aaa|Lalala|Bla bla|Blah|Yada yada).", "Fly to (you know where|the place|that place|where we were|the you know what).", "(Is|Are|Do|Can) (it|they|that)?", "(Left or right or not|Up and also not up|Go and do not go|Yes and no|Both and none).",
    ),
    "unable": (
        "(Make|Brew|Cook|Prepare|Fetch) (me |)(a coffee|some tea|dinner|lunch|breakfast|a sandwich|soup).", "(Pick up|Lift|Grab|Take|Grasp|Catch|Hold) the {x}.", "(Bring|Fetch|Hand|Get|Give|Carry) me the {x}.", "(Open|Close|Shut|Unlock|Paint|Knock at) the (door|window|gate|drawer|curtain|box).", "(Wash|Clean|Dry|Iron|Mend) (the dishes|my shirt|my car|the laundry|the floor|the {x}).",
        "(Carry|Take|Move|Drag|Bring) the {x} (to the kitchen|upstairs|to my room|to the table|outside|away).", "(Order|Buy|Sell|Pay for) (a pizza|a ticket|some food|the {x}|a {x}|flowers).", "(Switch|Turn) (on|off) the (light|radio|television|heating|oven|music).", "(Repair|Fix|Paint|Wipe|Polish|Wash|Empty|Fill|Open|Push|Pull|Throw|Hide|Wrap|Cut|Clean) the {x}.",
        "(Send|Write|Read me|Answer) (an email|a letter|a message|a poem|my mail).", "Push the {x} (away|aside|to the wall).", "(Pour me a drink|Sing a song|Tell me a joke|Dance with me|Play chess with me|Walk the dog|Feed the cat|Water the plants|Do my homework|Book a flight|Call my mother|Phone the doctor|Set the table|Drive me home|Peel the potatoes|Hang up the coat).", "Put the {x} (on the table|into the bag|on the shelf|back|away|down).",
        "(Sweep|Mop|Heat|Decorate) the (room|kitchen|house|floor).", "(What is the weather tomorrow|What time is it in Paris|How much is two plus two|Who won the game)?",
    ),
    "move": ("(zip|sail|hop|swoop|zoom|dart|skim|march|run|scoot|crawl|coast|hurry|jet|whizz|buzz|wander|steer|roll|dash|push|creep|race|ride) {w} {d}", "(zip|sail|hop|zoom|dart|scoot|coast|hurry|steer|crawl|roll|dash|whizz) {d} {w}", "{w} {d}", "{w}, {d}", "{w} by {d}", "a distance of {d} {w}", "(glide|float|sail) {w} (for |over ){d}",
        "(go|fly|move|step|glide|proceed|shift|drift|head|travel|float) {w} {d}", "(go|fly|move|drift|shift|head|travel|float|step) {d} {w}", "(go|fly|move) {w} (by|about) {d}", "(go|fly|move) {w}, {d}", "{d} {w}", "move yourself {w} by {d}"),
    "move forward": ("(press|push|carry) on (for |){d}", "(zip|zoom|dash|scoot) ahead {d}",
        "(advance|proceed|go on|go ahead|fly on|head on) {d}", "(advance|go) by {d}", "(fly|go) {d} (straight|on|onward|onwards)", "(take|make) {d} forward"),
    "move back": ("(shrink|fall|step|draw) back {d}", "backwards (for |){d}",
        "(back up|retreat|go in reverse|back off|move away|fly backwards) {d}", "(back up|retreat|back off) by {d}", "withdraw {d}", "(take|make) {d} back"),
    "move left": ("{d} (leftwards|leftward|over to the left|towards the left)", "(move|step|scoot|hop|ease) {d} (leftwards|over to the left|towards the left)", "(ease|edge|shuffle|swoop|zip) left {d}", "let yourself drift {d} to the left",
        "(slide|sidestep|drift|slip) left (by |){d}", "(shift|slide|move over|fly) {d} to the left", "(move|fly) sideways {d} to the left", "go left for {d}"),
    "move right": ("{d} (rightwards|rightward|over to the right|towards the right)", "(move|step|scoot|hop|ease) {d} (rightwards|over to the right|towards the right)", "(ease|edge|shuffle|swoop|zip) right {d}", "let yourself drift {d} to the right",
        "(slide|sidestep|drift|slip) right (by |){d}", "(shift|slide|move over|fly) {d} to the right", "(move|fly) sideways {d} to the right", "go right for {d}"),
    "move up": ("(shoot|hop|jump|lift) up {d}", "(add|put on) {d} of height", "(float|drift|zoom) {d} up",
        "(rise|climb|ascend|go up|mount|lift yourself|soar) {d}", "(rise|climb|ascend) by {d}", "gain {d} (of height|in height|of altitude)", "(fly|move) {d} higher", "increase your height by {d}", "go higher by {d}"),
    "move down": ("(dip|settle|drift|float) down {d}", "give up {d} of height", "(float|drift|dip) {d} down",
        "(descend|sink|come down|lower yourself|get down|fall) {d}", "(descend|sink|come down) by {d}", "lose {d} (of height|of altitude)", "(fly|move) {d} lower", "reduce your height by {d}", "go lower by {d}"),
    "move a little": ("(zip|hop|scoot|dart|coast|hurry|sail|dash|zoom) {w}",
        "(go|fly|move|head|travel|step|glide|drift) {w}", "(fly|go) {w} a metre", "just (go|fly) {w}"),
    "turn": ("(veer|wheel|twist|whirl|slew|revolve) {s}", "face {s}", "face (to|towards) (the|your) {s}", "(gaze|glance|peer|point) {s}", "(gaze|glance|peer|point) to (the|your) {s}", "(your nose|nose|camera) to the {s}",
        "(turn|rotate|pivot|swing|swivel|spin) {s}", "(turn|rotate|pivot|swing) to (the|your) {s}", "{s} turn", "(do|make) a {s} turn", "(turn|rotate) {s}wards", "take a {s} turn"),
    "turn degrees": ("(veer|wheel|twist|whirl|revolve|slew|angle) {s} (|by ){d}", "(veer|wheel|twist|whirl|revolve|slew|angle) {d} (|to the ){s}", "{s} by {d}", "{s} {d}", "{s}, {d}", "{d} {s}", "take {d} to the {s}", "(set|shift|change) your (heading|course|nose) {d} (|to the |further ){s}", "(face|point|gaze) {d} further {s}",
        "(turn|rotate|pivot|swing|swivel|spin) {s} (|by |through ){d}", "(turn|rotate|pivot|swing|swivel) {d} (|to the ){s}", "(turn|rotate) to the {s} by {d}", "{d} to the {s}", "(do|make) a turn of {d} to the {s}", "change your heading by {d} to the {s}"),
    "quarter turn": ("(wheel|twist|rotate|veer) {s} by one quarter of a turn", "one quarter of a (turn|circle) (to the |){s}", "(rotate|swing|wheel) {s} through a quarter circle",
        "(make|do|give me|take) a quarter turn (to the |){s}", "a quarter turn (to the |){s}", "(turn|rotate) a quarter to the {s}", "turn a quarter circle (to the |){s}"),
    "half turn": ("half a circle (to the |){s}", "(wheel|twist|veer) {s} through half a circle", "one half of a turn (to the |){s}",
        "(make|do|give me) a half turn (to the |){s}", "half a turn (to the |){s}", "(turn|rotate) half a circle to the {s}", "turn {s} by half a circle"),
    "full turn": ("(revolve|twirl|whirl|rotate|wheel|pivot) (once|one time|a single time)", "one (whole|full|complete) (revolution|rotation|spin|turn)", "(do|make|fly) (a|one) (revolution|pirouette|twirl)", "(rotate|spin|revolve) once about yourself", "turn through all 360 degrees", "once (around|round)",
        "spin (around|round) once", "(make|do) (a|one) (full|complete|whole) (turn|spin|rotation|circle)", "(spin|turn|rotate) all the way (round|around)", "turn a full circle", "(turn|rotate|spin) (by |)360 degrees", "do one full spin", "(turn|spin) right round once"),
    "turn around": ("(show|turn) your back", "turn your (back|tail) to what is ahead", "reverse your (direction|heading)", "(wheel|swing|spin|swivel) (around|round) to (face backwards|the back|the rear)", "face (where you came from|the rear|what is behind)", "look (to the rear|the way you came)",
        "turn (around|round|back)", "face (the other way|backwards|the opposite way|the other direction)", "(about turn|about face|turn to face backwards)", "(turn|rotate|spin) (by |)180 degrees", "(turn|look) the other way", "make a U-turn"),
    "turn clockwise": ("(veer|wheel|twist|whirl|slew) {c} (|by ){d} degrees", "{c}(,| by|) {d} degrees", "(wheel|slew|twist|whirl) {d} degrees {c}",
        "(turn|rotate|spin|swivel|revolve|pivot) (by |){d} degrees {c}", "(turn|rotate|spin|revolve|pivot) {c} (|by |through ){d} degrees", "{d} degrees {c}"),
    "photo": ("(take|shoot) a (still|shot|frame)", "(shoot|capture) (this|the view|the scene|what is ahead)", "(press|release) the shutter", "one (picture|photo|shot)(|, now| of this)",
        "(take|snap|shoot|make|get|grab|record|capture) (a|one|an) (picture|photo|image|photograph)", "(take|snap) a (picture|photo) (now|of this|of what you see|here|of the view)", "use your camera", "photograph (this|that|the view|the scene)", "say cheese"),
    "wait": ("(idle|stand by|linger|float|stay|freeze|keep waiting) (for |){t}", "give me {t}", "{t} (of pause|of rest|break)", "spend {t} (waiting|hovering)",
        "(wait|hover|pause|rest|hang there|stay there|stay put|hold|stop|hang on) for {t}", "(wait|pause|hover) {t}", "(hold still|hold your position|hold on|remain there|remain|stay in place) for {t}", "take a break of {t}", "let {t} pass", "(wait|hover) (about|some) {t}", "do not move for {t}"),
    "say": ("(say|announce|shout|message|report): {m}", "(say|announce|shout|report): '{m}'", "(repeat after me|these words|the message is|your line)(:|,) {m}", "(let us know|send the message|pass on) '{m}'",
        "(say|announce|shout|call out|speak|utter|report) '{m}'", "(say|announce|call out|report) {m}", "(say|speak|use) the words '{m}'", "tell (everyone|us|me|people|them) {m}", "(print|write|log) '{m}'", "give the message '{m}'", "say this: {m}"),
    "step: find": ("(scan|search|look around) for the {x} and (fly|go|head) (to it|there|over)", "(locate|spot|trace|find) the {x}, (fly|go) to it", "hunt down the {x}", "turn until you see the {x} and (go|fly) to it", "(locate|trace|spot) {a} and (fly|go) (there|to it)",
        "(find|look for|search for|hunt for|locate|track down|seek|trace|spot) the {x}(| and (go|fly) (to it|there))", "go and (find|look for) the {x}", "go find the {x}", "fly to the {x} (when you find it|wherever it is)", "find {a}(| and go to it)"),
    "step: photo of": ("(shoot|capture|film|picture|portray) the {x}", "(shoot|capture|film|picture|portray) (the|my) {x}(| with your camera)", "(look around|scan|search) for the {x} and (shoot it|photograph it|take its picture)", "(a|one) (photo|picture|shot) of the {x}", "get (the {x}|{a}) into a (photo|picture)", "turn until you see the {x} and (take a photo|photograph it|take a picture)", "(make|get|shoot) a (portrait|close-up|shot) of the {x}", "(find|locate|spot) (the {x}|{a}), then (shoot it|photograph it|capture it|take a photo)", "look where the {x} is and (shoot it|take its photo)",
        "(find|locate|look for|spot|search for) the {x} and (take a picture of it|take its picture|photograph it|snap a picture|take a photo|snap it|take a photo of it|shoot a photo)", "(take|get me|shoot|snap|make|I want|get) a (photo|picture|photograph) of the {x}", "(find and |)photograph the {x}", "find {a} and take a (picture|photo)", "(go and |)take the {x}'s picture"),
}  # fmt: skip

ARM: dict[str, tuple[str, ...]] = {
    "put, verb": ("(put|place|move|set|lay|transfer|shift|set down|stick|leave|drag|pop|relocate)",),
    "put one": ("{p}, that is the place for the {x}", "{p} goes the {x}", "{p}: the {x}",
        "{v} {c}", "{v} {c}", "{v} {c}", "(take|pick up|grab|lift|get) the {x} and (put|place|set|lay) it {p}", "I (want|would like) (the {x}|to have the {x}|you to put the {x}) {p}", "the {x} (goes|belongs|has to go|must go) {p}", "let me have the {x} {p}", "(can|could) you (put|place|move) {c}?", "{x}: {p}", "{x} {p}", "the right place for the {x} is {p}",
                "(make sure|see to it) that the {x} is {p}"),
    "put two": ("{v} {1}(| and|, then|,| and then|; then,| and also|, afterwards|, and) {2}", "{v} {1} (and then|, then|and) (put|place|move|set) {2}", "first (put|place|move) {1}, (then|and then) {2}", "{1}, {2}", "{v} {1}. (Then |After that, |And ){2}", "do two things: {1}, {2}"),
    "put three": ("{v} {1}, {2}( and|, then|, and|, finally|, and finally) {3}", "{v} {1}, then {2}( and then|, then|, and then| and|, finally) {3}", "first (put|place|move) {1}, then {2}, then {3}", "{1}, {2}, {3}", "{v} {1}. Then {2}. (Then |Finally |And ){3}", "{1}, then {2} and {3}", "{v} {1} and {2} and {3}"),
    "finally home": ("(, then| and|, and) (take a rest|go to your rest position|come back to rest|take your rest position)",
        "(, then| and|, and then| and then|, finally) (go home|return home|go to the rest position|go back to rest|go to rest|rest|go back home|finish at home)",),
    "finally say": ("(, then| and|, and then| and then|, finally| and finally|, afterwards) (say|announce|report) ({m}|'{m}')",),
    "finally open": ("(, then| and|, and) open (the|your) (gripper|fingers)", "(, then| and) let go"),
    "pick": ("(pick up|grab|take|grasp|hold|lift|get|seize|catch|clutch|pull up|collect|lift up|take up|grip) (the|that|my) {x}", "pick (the|that) {x} up", "get hold of the {x}", "(take|hold) the {x} in your (hand|gripper)", "(can|could|will) you (pick up|grab|hold|take|lift) the {x}?", "I want you to (pick up|hold|grab|take) the {x}", "(go and |)pick up the {x}", "{x}, (pick it up|grab it|take it)"),
    "throw": ("(throw away|throw out|discard|dispose of|get rid of|bin|trash|scrap|dump|remove) the {x}", "(throw|drop|put|toss|put away|move) the {x} (in|into) the bin", "the {x} is (rubbish|garbage|waste|useless|broken, throw it away|for the bin)", "throw the {x} away", "the {x} (belongs in|goes into|can go in) the bin", "(nobody needs|we do not need|I am done with) the {x}, throw it away", "into the bin with the {x}"),
    "drop": ("(drop|let fall|release|dump) the {x} {p}", "let the {x} (fall|drop) {p}", "(pick up|take|grab) the {x} and (drop|release|dump) it {p}", "(take|lift) the {x} and let it drop {p}"),
    "over": ("(move|go|hover|stay|swing|position yourself|move your hand) (over|above) the {x}", "(move|go) (|your arm |the gripper )to the {x}", "reach (above|over|to) the {x}", "be over the {x}", "approach the {x}", "hold your hand over the {x}", "bring the gripper over the {x}"),
    "show": ("(show me|point at|point to|point out|indicate|identify) (the|my) {x}", "(which|what) (is|one is) the {x}?", "which of these (is|things is) the {x}?", "(tell me|show me|show) (which one|where) the {x} is", "where is (the|my) {x}?", "where can I find the {x}?", "do you know which one the {x} is?", "I cannot find the {x}, where is it?"),
    "open": ("open (the gripper|your hand|up|your fingers|your gripper|it|)", "let go", "(release|relax|unlock) (the gripper|your grip|your fingers)", "(spread|part) your fingers", "let go of what you hold"),
    "close": ("(close|tighten) (the gripper|your hand|your gripper|your fingers|it)", "shut (the gripper|your hand)", "close(| up)", "make a fist", "(grip|squeeze) (now|tight|together)"),
    "home": ("(go|return|move|come|go back|move back) (home|to rest|to the rest position|to your rest position|to the start position)", "(rest|home|park|relax|park yourself|take a rest)", "(go|move) to your (home|starting) position", "back home", "(retreat|withdraw)", "go where you (started|began)"),
    "say": ("(say|announce|speak|call out|tell me|utter|report) '{m}'", "(say|tell me|announce|call out|report) {m}", "(say|speak) the words ({m}|'{m}')", "say this: {m}", "tell (everyone|us|people) {m}", "give the message '{m}'"),
    "look": ("(study|observe|explore|monitor|overlook) the {p}", "give me an overview of the {p}", "report what is on the {p}", "(run|cast) your eyes over the {p}",
        "look at the {p}", "(check|inspect|examine|scan|view|survey|watch) the {p}", "what (is|do you see|can you see|is there|have we got) on the {p}?", "(tell me|say) what (you see|is|there is) on the {p}", "(take a look at|look over|show me) the {p}", "which things are on the {p}?"),
    "stack": ("(stack|stack up|pile|pile up|heap|heap up|arrange) the {s}", "(build|make|form) (a tower|a stack|a pile) (of|from|with|out of) the {s}", "(stack|pile) (these|those) {s}", "the {s} (in a stack|as a tower|one on another)", "stack"),
    "stack, verb": ("(put|stack|place|set|pile|lay|move)",),
    "sort": ("(Put|Move|Place|Sort|Set|Pack|Throw|Lay) {c}.", "(Sort|Arrange|Order|Organise|Tidy|Group|Divide|Classify|Split|Split up) (the |these |all )(things|objects|items|stuff|table): {c}.", "(Clean|Clear|Tidy|Tidy up|Clean up|Organise|Arrange) the (desk|table|bench): {c}.", "Bring order to the (desk|table): {c}.", "(Tidy up|Sort|Clean up|In order|Everything in order|Organise|Order|Rule): {c}.",
             "{c}.", "(We sort like this|Sort them by kind|Everything has its place|By kind): {c}.", "(Please sort|I need you to sort) (these|the things): {c}."),
    "clear the desk": ("(Clean|Tidy|Clear|Tidy up|Clean up|Clear up|Organise|Sort) the (desk|table|bench|place): (the |){k} {b}(,| and|, then) the {x} {p}.", "(Put|Move|Place) the {k} {b} and the {x} {p}.", "(Clean up|Tidy up|Clear up|In order please|Make order): (the |){k} {b}(, then| and|,) the {x} {p}.", "The {k} {b}, the {x} {p}.", "(Put|Move) the {x} {p} and the {k} {b}.",
                       "{k} {b}, {x} {p}."),
    "all": ("(Put|Move|Place|Drop off|Gather|Set|Lay|Stuff) (everything|all things|all of it|all of them|it all|the lot|them all|whatever is there|all) {p}.", "(Clear|Empty|Clean) the (table|desk|bench): (everything|all) (goes |){p}.", "(All|All the) (things|objects|items|stuff) (go|belong|must go) {p}.", "Everything (goes|belongs|must go|has to go) {p}.", "(Gather|Put together) everything {p}.", "(Pick up|Take) everything and put it {p}.", "{p} with everything."),
    "there?": ("(Can|Do|Could) you (make out|detect|recognise|perceive|notice|discern) (the {x}|{a})(| there| here| on the table)?", "Is {a} (in sight|visible|around|in view)?", "Has the table got {a}?", "Would you say there is {a}?",
        "Is there {a}(| on the table| here| there| among the things| on the desk)?", "(Do|Can) you see (the {x}|{a})(| there| on the table|)?", "Do (you|we) have {a}(| here| there)?", "Is (the {x}|{a}) (there|here|on the table|among the things|on the desk|present)?", "(Tell me|Say|Check|Find out|See) (if|whether) (there is {a}|you see {a}|the {x} is there|the {x} is here).", "Does the table have {a}?", "Any {x} (there|here|on the table)?", "Is {a} to be seen?",
               "Are you seeing {a}?", "{a}, is it there?"),
    "missed, why": ("the {x} (slipped|moved|moved away|rolled away|was gone|turned over|is too heavy)", "the (grasp|grip) failed", "I (missed|could not grasp|could not hold|did not get|failed to grasp|lost) the {x}", "of a (time-out|timeout|bad grasp|slip)", "the gripper (lost|missed) the {x}", "my fingers (slipped|closed too early)"),
    "fell, why": ("the {x} (fell|fell down|fell off|fell on the table|slipped|slipped away)(| on the way)", "I (dropped|lost) the {x}(| on the way)", "the {x} (slipped out of|fell from|fell out of) (the gripper|my hand)", "the gripper lost the {x}(| on the way)"),
    "stopped, why": ("the (connection|signal|link) was (lost|broken)", "the (connection|signal) dropped", "I was (stopped|interrupted|paused|switched off)", "of a (time-out|timeout|pause|safety stop)", "the operator (paused|stopped) me", "the emergency button was pressed", "of an error"),
    "rest": ("(Continue|Go on|Carry on|Proceed|Keep going)(| with (it|the rest|the plan|the task)).", "(Finish|Complete|Do) (it|the rest|the task|the plan|what remains|the remaining steps).", "(Go on|Continue) from (there|where you stopped)."),
    "unseen": (
        "(Put|Place|Move|Set|Lay|Transfer|Shift|Set down) the {x} {p}.", "(Pick up|Get|Take|Lift up|Grab|Hold|Lift|Grasp|Seize|Catch|Collect) (the|my|that) {x}.", "Pick the {x} up.", "(Pick up|Take|Grab) the {x} and (put|place|drop) it {p}.", "(Throw away|Discard|Bin|Get rid of|Throw out|Trash) the {x}.", "(Throw|Drop|Put) the {x} into the bin.", "(Can|Could) you (pick up|get|take|grab) the {x}?",
        "I (want|would like) the {x} {p}.", "The {x} (goes|belongs) {p}.", "(Drop|Let fall) the {x} {p}.", "(Move|Go|Hover) over the {x}.", "(Show me|Point at|Where is|Which one is) the {x}(.|?)", "(Stack|Put) the {x} on the {y}.", "Throw the {x} away.", "Give me the {x}.",
    ),
    "unsafe": (
        "(Hit|Push|Strike|Pinch|Punch|Hurt|Injure|Poke|Attack|Choke|Squeeze|Kick|Stab|Cut) (the|that|this) {w}.", "(Stab|Hit|Cut|Injure|Hurt|Poke|Strike|Beat|Threaten) the {w} with the {x}.", "(Throw|Hurl|Toss|Shoot|Swing) the {x} at the {w}(|'s head).", "(Grab|Squeeze|Twist|Pull|Crush|Pinch) the {w}'s (hand|arm|finger|hair|ear|neck).", "(Put|Throw|Drop|Hold) the {x} (into|in) the (fire|flames|microwave|oven).",
        "(Smash|Break|Crush|Shatter|Destroy|Squash|Wreck|Snap|Tear apart) the {x}.", "Drop the {x} on the {w}(|'s head|'s hand).", "Put the {x} in the {w}'s (mouth|eye|nose).", "Poke the {w} in the (eye|ear|face|back).", "(Throw|Hurl|Toss) the {x} (across the room|out of the window|against the wall|through the window|at the wall).", "(Hit|Smash|Beat) the {x} with the {y}.", "(Swing|Lash out) at the {w}.",
        "(Move|Swing|Wave) as fast as you can (near|beside|over) the {w}.", "(Knock|Push) the {w} over.", "Close the gripper on the {w}'s (hand|finger).", "Stick the {x} into the (socket|power outlet).", "(Pour|Spill) the {x} over the {w}.", "(Knock|Push|Sweep) the {x} (off|to) the (table|floor).",
    ),
    "unclear": (
        "Do (it|that thing|the usual|the thing|that|something|anything|whatever|stuff|this and that).", "(Put|Place|Move|Take) (it|that|this|this one|them|that one) (there|over there|somewhere|here|away|on that|back).", "The (other one|one|same as always|same as before|thing|usual).", "(You know what to do|Like before|As always|As usual|Just so|Same as yesterday|The way I like it).",
        "(Maybe|Perhaps|Maybe later|Possibly|Not sure|I do not know|Dunno)(.|...|?)", "(Hmm|Hm|Er|Uh|Ah|Oh|Eh|Ehm|Well|Huh|Ok|So)(.|...|?|!)", "(Thing|It|Something|That|This|There|What|Because|Whatever|Anyway|Somehow)(.|?|)", "(Asdf|Qwer|Jklo|Sdfg|Wert|Hjkl|Uiop|Bnmv|Xkcd|Yxcv|Lkjh|Poiu|Mnbv)( asdf| qwer| jkl| uiop| ghjk| wert| dfgh|).",
        "(Blorp|Glip|Snarf|Zib|Frobble|Wug|Plonk|Grok|Quux|Mizzle|Twang) the (fnord|zorp|blick|gloop|wozzle|snib|dax|flimp|quib|morf).", "(Just do something|Make it so|Make it good|Do your thing|Surprise me|Be nice|Be good|Try harder|Try|Place it|Pick|Take)(.|!)", "(Move|Take|Put) the (whatsit|thingy|whatchamacallit|doohickey|gizmo)(| there| away| on the other).", "(What I said|As I said|What he said|Like I told you|You heard me).",
        "(That over there|Over there, that one|That one there|The one over there|Over yonder).", "(Zzz|Brr|Pff|Tsk|Aaa|Lalala|Bla bla|Blah|Yada yada).", "Of the (and but|or if|for with).", "(Take this to that|Put this on that|One of them, maybe|Not that, the other).",
    ),
    "unable": (
        "(Make|Brew|Cook|Prepare|Fetch) (me |)(a coffee|some tea|dinner|lunch|breakfast|a sandwich|soup).", "(Walk|Run|Go|Drive) (to the kitchen|to the shop|to the garden|around the house|upstairs|home|to school|out of the room).", "(Fly|Jump|Fly up|Jump up|Swim|Roll away|Climb the stairs|Follow me|Come with me|Come here|Leave the room).", "(Open|Close|Shut|Paint|Clean) the (door|window|curtain|garage).",
        "(Wash|Sweep|Mop|Paint|Wipe) (the floor|the car|the house|the wall|the windows).", "(Order|Buy|Sell) (a pizza|a ticket|some food|a car|flowers).", "(Take|Make|Shoot) a (picture|video|film).", "(Send|Write|Read me|Answer) (an email|a letter|a message|a poem|my mail).", "(Dance with me|Tell me a joke|Water the garden|Book a flight|Phone my mother|Call the doctor|Drive me home|Play football|Walk the dog|Feed the cat|Do my homework|Iron my shirt|Set an alarm|Switch on the light|Turn off the music|Play some music).",
        "(Turn left|Go forward two metres|Take off|Land|Fly to the door|Turn around|Climb one metre|Roll forward).", "(What is the weather tomorrow|What time is it in Paris|How much is two plus two|Who won the game)?",
    ),
}  # fmt: skip
ARM["again, in the task"], ARM["again"] = DRONE["again, in the task"], DRONE["again"]

_CHOICE = re.compile(r"\(([^()]*)\)")


@cache
def expand(pattern: str) -> tuple[str, ...]:
    """All wordings of a pattern, in order.

    >>> expand("(go|fly) there(| now).")
    ('go there.', 'go there now.', 'fly there.', 'fly there now.')
    """
    found: list[str] = [pattern]
    # Innermost choices first, so that choices may stand in choices.
    while any("(" in text for text in found):
        found = [made for text in found for made in _once(text)]
    return tuple(dict.fromkeys(_tidy(text) for text in found))


def _once(text: str) -> list[str]:
    parts = _CHOICE.split(text)
    options = [part.split("|") if index % 2 else [part] for index, part in enumerate(parts)]
    return ["".join(chosen) for chosen in product(*options)]


def draw(rng: random.Random, patterns: tuple[str, ...]) -> str:
    """One wording: broad patterns more often than narrow ones, but not in proportion."""
    weights = [math.sqrt(min(_breadth(pattern), 16)) for pattern in patterns]
    text = rng.choices(patterns, weights)[0]
    while "(" in text:
        text = _CHOICE.sub(lambda found: rng.choice(found.group(1).split("|")), text)
    return _tidy(text)


@cache
def _breadth(pattern: str) -> int:
    return math.prod(choice.count("|") + 1 for choice in _CHOICE.findall(pattern)) if "(" in pattern else 1


def _tidy(text: str) -> str:
    """No double spaces, none before a stop; one at the beginning of a tail stays."""
    return re.sub(r" ([,.;!?])", r"\1", re.sub(r"  +", " ", text)).rstrip(" ")
