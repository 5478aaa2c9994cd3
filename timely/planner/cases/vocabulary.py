# ruff: noqa: E501 (tables of words: a line is a list)
"""The things that tasks are about. What the held-out test speaks of never occurs in training."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from timely.planner.cases import heldout, wordings

Split = Literal["train", "test"]

_WORD = re.compile("[a-z]+")


def _list(text: str) -> tuple[str, ...]:
    """Separated by commas."""
    return tuple(" ".join(part.split()) for part in text.split(","))


def _named(text: str) -> tuple[str, ...]:
    """Separated by white space; underscores stand for spaces."""
    return tuple(name.replace("_", " ") for name in text.split())


PHRASES: dict[Split, Mapping[str, tuple[str, ...]]] = {
    "train": {**wordings.DRONE, **{f"arm {key}": value for key, value in wordings.ARM.items()}},
    "test": {**heldout.DRONE, **{f"arm {key}": value for key, value in heldout.ARM.items()}},
}
"""Wordings by kind of task; those of the arm with ``arm`` before."""

DRONE_OBJECTS: dict[Split, tuple[str, ...]] = {
    "train": _list("""cat, dog, ball, chair, cup, phone, book, lamp, shoe, bottle, vase, toy, keys, backpack, plant, guitar, clock, umbrella, suitcase, laptop, mug, hat, teddy bear, sofa, television, bicycle, box, basket,
pillow, blanket, candle, mirror, printer, radio, speaker, glasses, wallet, remote, jacket, sock, pen, bucket, ladder, broom, helmet, tent, skateboard, trophy, football, kite, flower, apple, banana,
pizza, sandwich, notebook, newspaper, magazine, calendar, coffee machine, microwave, toaster, kettle, fridge, fan, heater, red ball, blue box, green bag, yellow cup, toolbox, hammer, drill,
flashlight, bed, table, desk, door, plate, bowl, fork, spoon, towel, soap, toothbrush, doll, puzzle, drum, piano, robot, drone, rabbit, bird, parrot, goldfish, hamster, letter, envelope, stapler,
scarf, gloves, belt, ring, watch, necklace, key ring, water bottle, tennis ball, cardboard box, lunch box, photo frame, fire extinguisher, first aid kit, coat, rug, curtain, statue, globe, tablet,
monitor, keyboard, violin, camera, sunglasses, handbag, pumpkin, teapot, snowboard, surfboard, scooter, turtle, ferret, tripod, briefcase, bookshelf, cactus, lantern, whistle, yellow ball, pink bag,
wine glass, frying pan, baseball bat, alarm clock, headphones, passport, measuring tape, screwdriver, purple hat, orange, boots, cushion, goblet, frisbee"""),
    "test": _named(heldout.DRONE_OBJECTS),
}


NOUNS: dict[Split, tuple[str, ...]] = {
    "train": _list("""anchor, antenna, apron, armband, arrow, axe, badge, bagel, balloon, bamboo, bandage, banner, barrel, basin, bathtub, bead, beaker, bean, bell, binder, biscuit, blender, bobbin, bolt, bonnet, bookmark,
bouquet, bracelet, brick, bridge, broccoli dish, bubble wrap, buckle, bulb, bunny, burger, butter, button, cabin, cable, cactus pot, cage, cake, camel, candy, canoe, canvas, cap gun, carton, cartoon,
cassette, castle, catalogue, cello, ceramic bowl, chain, chalk, charm, cheese cube, chess piece, chimney, chip, chisel box, chocolate, cigar, clam, clarinet, clay, clipboard, clothes peg, clover,
coaster, coconut, coffee, collar, comb, compass, computer, cone, cookie jar, copper wire, coral, cork, costume, cotton reel, crab, cracker, cradle, crane, crayon box, cream, crown, crystal, cube, cup
holder, cymbal, daisy, dart, detergent, diary, dinosaur, dish, doorbell, doughnut, dragon, dress, drone box, dryer, duck, dumbbell, earring, easel, eel, egg timer, elephant, engine, eraser box,
eyeglasses, fabric, faucet, feather, fence, fern, fig, file folder, filter, fish, flag, flask, flipper, flute, foil, folder, football boot, fountain, fox toy, freezer, funnel, furnace, garlic press,
gate, gear, gift, giraffe, glue, goggles, gong, grape juice, grater, gravel, grill, guinea pig, hairbrush, ham, hammock, handle, hanger, harp, hat box, hay, hedge, hinge, hockey stick, honey, hoop,
hose, hourglass, ice cube, igloo, ink, iron, jam, jelly, jewel, jigsaw, jug, juice, kazoo, keyhole, kiosk, kitten, koala, lace, lamb, laser, latch, leaf, leash, ledger, lens, lid box, lighter, lily,
lime, lock, log book, lollipop, loom, lotion, magnet, mallet, map, maple, marimba, mask, match, mattress, medal, melon slice, memo, mesh, metronome, microphone, milk, mirror ball, mitten, mop, mosaic,
motor, mouse pad, muffin, mushroom, nail, napkin, needle, net bag, nest, nozzle, nut, oar, oat bag, octopus, oil, olive, onion ring, otter, oven, owl, padlock, paint, paintbrush, palette, pan, panda,
paperclip, parcel, pasta, peach can, peanut, pearl, pebble, pedal, peg, penguin, pepper mill, perfume, petal, pickle, pie, pig, pillowcase, pin, pipe, pizza box, plank, plaster, pliers case, plug,
plum cake, pocket knife, pony, popcorn, porcelain cup, postcard, poster, pot, pottery, present, propeller, pudding, pump, puppet, purse, pyramid, quill, quilt, rabbit toy, racket, raft, raisin,
rattle, razor, receipt, recipe book, record, reel, ribbon, rice, rocket, roller, rope, rose, rubber band, saddle, sail, salt, sandal, saxophone, scale, screen, seal, seashell, seed, shampoo, shark,
shell, shield, ship, shirt, shovel toy, silk, ski, skirt, sled, sleeve, slipper, snail, snowman, soda, sofa cushion, spade, spice, spider, sponge cake, spool, squirrel, stamp, star, starfish, stone,
straw, string, submarine, sugar, suit, swan toy, sweater, swing, sword, syringe, table cloth, tambourine, tank, tart, taxi, teabag box, telescope, thermometer, thimble, thread, ticket, tie, tiger,
tile, toad, tomato can, tongs, tractor, train ticket, tray table, treadmill, trolley bag, trombone, trumpet, tub, tulip, turnip, typewriter, ukulele, urn, vacuum, vest, visor, waffle, wagon, walnut,
wand, wardrobe key, washer, watering can, wax, whale, wheel, whisk, wig, windmill, wool, wreath, xylophone, yarn, yoyo, zebra, zipper, abacus, accordion, acorn, avocado, backgammon, banjo, beehive,
bulldozer, calendar page, camcorder, cauldron, chandelier, chopsticks, cobweb, colander, crowbar, dictionary, dolphin, dustpan, emerald, envelope opener, fiddle, flowerpot, gazebo, gorilla, hairdryer,
harmonica, hatchet, helicopter, jellyfish, joystick, kangaroo, kettlebell, lavender, lobster, locket, mandolin, meerkat, minivan, molecule model, necktie, origami, paddle, peacock, pendant, pineapple
ring, pinwheel, projector, radish, rhubarb, rollerblade, sawdust, scorpion, screwcap, seahorse, shoelace, snorkel, stethoscope, sundial, tarpaulin, teaspoon set, toboggan, tortoise, trampoline,
trumpet case, vinyl record, wheelbarrow, woodpecker, zucchini, ashtray, badminton net, bagpipes, bait box, ballpoint, bar stool, barbecue, barbell, baseball, basketball, bat, bath mat, beach towel,
bedside lamp, beer glass, bib, bicycle bell, bicycle pump, birdhouse, birthday card, blackboard, blind, board game, boat, body lotion, bookend, boot, bow, bowling ball, bowling pin, bracket, bread
bin, briefs, bubble gum, bucket hat, bumper, bunk bed, buoy, bus ticket, butter dish, button box, cable drum, cake stand, calculator watch, can opener, candlestick, candy bar, cane, car key, car seat,
card game, carpet knife, cart, casserole, catapult, disc player, cereal box, chair leg, chalkboard, charging cable, cheese board, cherry tree, chest, chew toy, chicken, chocolate bar, choir book,
christmas tree, clay pot, cleaver, climbing rope, clothes rack, coat stand, coffee cup, coffee grinder, coin bank, colour box, comic, cone hat, cooking pot, cooler, cot sheet, cowboy hat, crank, cream
jar, credit card, cricket bat, cross, crutches, cup cake, cupcake, curtain rod, cutter, cutting board, cycle helmet, dagger, desk fan, desk lamp, detector, diamond, digital clock, dinner bell, dish
rack, dishcloth, dishwasher, dog bowl, dog lead, dollhouse, donut, door handle, door mat, drawing, drill bit, drone battery, drum stick, drumstick, duffel bag, dustbin, duster, ear muffs, earphones,
egg box, egg cup, electric guitar, electric kettle, elastic band, espresso machine, exercise bike, extension cord, eye mask, fan heater, feather duster, felt hat, ferry ticket, file box, fire hose,
fire truck, first aid box, fish bowl, fish tank, flashcard, flat iron, flower pot, flower vase, flyer, fly swatter, folding chair, foot stool, football shirt, fork lift, fruit basket, fruit bowl,
frying basket, fuse, game console, garbage bag, garden chair, garden gnome, gas bottle, gift bag, gift box, glass bottle, globe lamp, glove box, glow stick, golf ball, golf club, graph paper, green
bottle, gum, gym bag, hair clip, hair dryer, hair tie, hand bell, hand brush, hand cream, hand saw, handkerchief, hard disk, hard hat, hat rack, hazard lamp, headband, headset, hearing aid, heat lamp,
herb pot, hiking boot, hole punch, hook rail, horn, horse shoe, hot plate, hub cap, ice bag, ice cream, ice pack, incense, ink pad, jack, jacket hook, jam jar, jar lid, jeans, jersey, jewel box, jump
rope, kettle lid, key card, key holder, keyring, kid chair, kitchen roll, kitchen scale, kitchen timer, knee pad, knife block, label, ladle, lampshade, lantern hook, laptop bag, lawn chair, leash
hook, leather belt, lego brick, lemonade, letter box, letter opener, lid, life jacket, light bulb, light switch, lip balm, loaf, loudspeaker, lunch bag, magazine rack, magnifier, magnifying glass,
mail, marker, mask box, matchbox, measuring cup, medal case, medicine, megaphone, menu, metal box, milk carton, milk jug, mixer, mobile phone, model car, model train, money box, monkey wrench, moped,
motorbike, mouse, mouse trap, mousetrap, mouth organ, mud boots, nail clipper, nail file, name plate, necklace box, news page, night lamp, night light, notice board, number plate, nutmeg, oil can, oil
lamp, onion, oven glove, oven mitt, packet, paddle ball, paint box, paint bucket, paint can, pair of scissors, pamphlet, paper bag, paper cup, paper plate, paper plane, paper roll, parachute, party
hat, passport case, peg board, pen holder, pencil case, pencil sharpener, pepper, perfume bottle, pet bed, petrol can, piggy bank, pill box, pillow fight, pin board, ping pong ball, pink ball,
pitcher, plaid, plant pot, plastic bag, plastic bottle, plate rack, playing card, plunger, pocket watch, pool cue, potato, power drill, power strip, printer paper, prism, prize, puncher, purple bag,
push broom, puzzle box, quiver, radio clock, rain coat, raincoat, rake, reading lamp, record player, recorder, red flag, red scarf, refrigerator, remote control, rice bag, rice cooker, ring box, robot
arm, rock, rocker, rocking chair, roll of tape, rolled towel, roller skate, rope ladder, rubber boot, rubber glove, ruler, running shoe, sack of flour, safe, safety vest, salad fork, salt shaker, sand
timer, sandbag, sauce bottle, saucepan, scarecrow, school bag, scissors, score board, scraper, screwdriver set, scrub brush, sculpture, sea shell, security camera, serving tray, sewing kit, shaver,
shin guard, shoe box, shoe brush, shoe polish, shoe rack, shopping cart, shopping list, shower cap, shower curtain, shuttlecock, sickle, side lamp, signpost, skewer, ski boot, ski pole, skipping rope,
slate, sledge, sled dog toy, slide rule, smart watch, smartphone, snack, snow globe, snow shovel, soap bar, soap dish, soccer ball, sock puppet, socket, soda can, solar lamp, soup can, soup spoon,
spatula, spice rack, spirit level, spotlight, spray bottle, spray can, spring, squash, stamp pad, stand, step stool, stereo, sticker, sticky note, stop sign, stopwatch, storage box, stove, strap,
street sign, strongbox, stuffed animal, suit jacket, sun hat, sunscreen, swimming cap, swimsuit, swiss knife, switch, t-shirt, table lamp, table tennis bat, tape recorder, target, tea cup, tea kettle,
tea towel, tennis racket, test tube, text book, tin, tin can, tissue box, toilet paper, tool bag, tool belt, toothpaste tube, top hat, torch lamp, towel rack, toy block, toy box, toy dinosaur, toy
horse, toy soldier, traffic cone, traffic light, trainer, trash bag, trash can, travel bag, treasure chest, tricycle, trophy cup, trousers, trunk, tuba, tweezers, typewriter case, tyre, umbrella
stand, vacuum cleaner, valve, vinegar, volleyball, waffle iron, walking stick, wall clock, wall socket, washing line, washing machine, waste basket, watch box, water gun, water jug, watering pot,
watermelon, wedding ring, weight, welcome mat, wet towel, wheel cap, whiteboard, wind chime, window cleaner, wine bottle, winter coat, wooden spoon, wool hat, work glove, work lamp, wrapping paper,
wrench, wrist watch, writing pad, yellow bag, yoga mat"""),
    "test": _named(heldout.NOUNS),
}
"""Anything at all: a plan must copy names that it has never seen."""

ADJECTIVES: dict[Split, tuple[str, ...]] = {
    "train": _list("""red, blue, green, yellow, white, black, big, small, old, new, wooden, metal, broken, shiny, round, long, soft, empty, heavy, plastic, orange, purple, tiny, rusty, striped, square, thick, glass,
golden, pink, grey, bright, dark, clean, dirty, little, large, short, tall, cheap, expensive, light, warm, cold, open, closed, rubber, paper, fancy, antique, folded"""),
    "test": heldout.ADJECTIVES,
}

SURFACES: dict[Split, tuple[str, ...]] = {
    "train": _list("""shelf, cabinet, wardrobe, fridge, bookcase, cupboard, top shelf, locker, dresser, mantelpiece, bunk, high shelf, display case, bookshelf, kitchen shelf, refrigerator, tall cabinet, kitchen cupboard,
kitchen counter, rack, storage rack, upper shelf, closet, fireplace, ledge, stove, china cabinet, piano, vending machine, pantry shelf, highest shelf"""),
    "test": heldout.SURFACES,
}

UNDERS: dict[Split, tuple[str, ...]] = {
    "train": _list("""bed, table, desk, sofa, chair, couch, car, armchair, piano, workbench, coffee table, crib, dining table, kitchen table, wooden chair, shelf, bunk bed, writing desk, bathtub, radiator, wardrobe, office
chair, stairs, truck, blanket, big table, baby bed, garden table, cart, rocking chair"""),
    "test": heldout.UNDERS,
}

FURNITURE = (
    "sofa",
    "table",
    "lamp",
    "chair",
    "desk",
    "window",
    "carpet",
    "shelf",
    "door",
    "wall",
    "plant",
    "books",
)

NEEDS: dict[Split, tuple[tuple[str, str], ...]] = {
    "train": (
        ("cut paper", "scissors"), ("write", "pen"), ("drink from", "cup"), ("sit on", "chair"), ("eat soup with", "spoon"), ("clean the floor", "broom"),
        ("open a bottle", "opener"), ("tell the time", "clock"), ("read", "book"), ("play music", "radio"), ("dry my hands", "towel"), ("keep off the rain", "umbrella"),
        ("light the room", "lamp"), ("drive a nail", "hammer"), ("carry shopping", "bag"), ("brush my teeth", "toothbrush"), ("boil water", "kettle"), ("wear on my head", "hat"),
        ("play with", "ball"), ("sleep on", "bed"), ("cut wood", "saw"), ("dig a hole", "shovel"), ("climb up", "ladder"), ("wash my hands", "soap"),
        ("drink", "juice"), ("eat", "apple"), ("cool the room", "fan"), ("cut bread", "knife"), ("tighten a screw", "screwdriver"), ("warm me up", "heater"),
        ("take notes", "pencil"), ("measure a board", "ruler"), ("catch a fish", "net"), ("paint a wall", "brush"), ("put out a fire", "extinguisher"), ("call someone", "phone"),
        ("cut cloth", "shears"), ("cut cake", "cake knife"), ("dry the dishes", "dish towel"), ("wipe the table", "cloth"), ("water the plants", "watering can"), ("light a candle", "match"),
        ("comb my hair", "comb"), ("look far away", "telescope"), ("protect my eyes", "glasses"), ("carry water", "bucket"), ("open a can", "can opener"), ("dry my hair", "hair dryer"),
        ("clean my shoes", "shoe brush"), ("stir the soup", "ladle"), ("hang a picture", "nail"), ("keep food cold", "fridge"), ("heat food", "microwave"), ("vacuum the carpet", "vacuum"),
        ("type a letter", "keyboard"), ("print a page", "printer"), ("draw a line", "ruler"), ("erase a line", "eraser"), ("fry an egg", "pan"), ("mix a drink", "mixer"),
        ("lock the door", "lock"), ("unlock the door", "key"), ("tie a parcel", "string"), ("blow up a balloon", "pump"), ("cover my head", "cap"), ("carry my laptop", "laptop bag"),
        ("lie on", "mattress"), ("keep me warm", "blanket"), ("cross a river", "boat"), ("ride on", "bicycle"), ("listen to music", "headphones"), ("watch a film", "television"),
        ("wake me up", "alarm clock"), ("serve tea", "teapot"), ("clean windows", "sponge"), ("rake leaves", "rake"), ("pay for lunch", "wallet"), ("kick", "football"),
        ("make coffee", "coffee machine"), ("toast bread", "toaster"), ("store books", "bookshelf"), ("count money", "calculator"), ("protect my head", "helmet"), ("see myself", "mirror"),
        ("reach a high shelf", "step stool"), ("hold paper together", "stapler"), ("loosen a bolt", "wrench"), ("iron a shirt", "iron"), ("blow my nose", "tissue"), ("measure my height", "tape measure"),
        ("shave", "razor"),
    ),
    "test": heldout.NEEDS,
}  # fmt: skip
"""What for, and a thing that fits."""

MESSAGES: dict[Split, tuple[str, ...]] = {
    "train": _list("""hello, good morning, I am ready, all clear, dinner is ready, thank you, hi there, welcome home, time to go, the meeting starts, please wait, well done, good night, I am here, see you soon, lunch is
ready, the door is open, mission complete, good evening, the show begins, stand by, welcome everyone, happy birthday, class is over, food is served, do not worry, happy new year, follow me, the game
is over, wake up, breakfast is ready, mind the step, the shop is open, we are closed, thanks for coming, the train is late, tea is ready, merry christmas, good afternoon, goodbye, see you later,
please be quiet, the show is over, work is done, I am finished, job complete, have a nice day, stay back, on my way, almost there, the test begins, attention please, pizza is here, well played,
safe travels"""),
    "test": heldout.MESSAGES,
}


QUESTIONS: dict[Split, tuple[tuple[str, str], ...]] = {
    "train": (
        ("is the {x} open", "yes"), ("what colour is the {x}", "red"), ("is the {x} empty", "no"), ("is the {x} broken", "no"), ("what is on the {x}", "a cat"), ("who is near the {x}", "nobody"),
        ("is the {x} clean", "yes"), ("is the {x} on", "no"), ("what does the {x} say", "exit"), ("is anyone sitting on the {x}", "no"), ("is the {x} closed", "no"), ("what shape is the {x}", "round"),
        ("what is near the {x}", "a cup"), ("is the {x} wet", "yes"), ("is the {x} new", "yes"), ("is the {x} heavy", "no"), ("what is in the {x}", "water"), ("what is under the {x}", "a sock"),
        ("who is next to the {x}", "a man"), ("is the {x} made of wood", "yes"), ("what colour has the {x}", "green"), ("is the {x} upright", "no"), ("how many legs has the {x}", "four"), ("is someone holding the {x}", "no"),
        ("what is behind the {x}", "a wall"), ("is the {x} moving", "no"), ("is the {x} switched on", "yes"), ("what is written on the {x}", "stop"), ("is the {x} hot", "yes"), ("is the {x} bigger than you", "no"),
        ("where is the {x} standing", "on the floor"), ("is the {x} locked", "yes"), ("how old is the {x}", "new"), ("which brand is the {x}", "acme"),
    ),
    "test": heldout.QUESTIONS,
}  # fmt: skip
"""For the camera, and what it says."""

PEOPLE: dict[Split, tuple[str, ...]] = {
    "train": _list("""man, woman, child, person, girl, visitor, neighbour, baby, runner, teacher, boy, worker, postman, stranger, old lady, boss, mother, father, sister, brother, driver, policeman, student, doctor, guest,
cook, old man, young woman, kid, guard, passenger, customer, tourist, pupil, builder, waiter, friend, colleague, engineer, patient, walker, painter, cleaner, grandmother, human"""),
    "test": heldout.PEOPLE,
}

ANIMALS: dict[Split, tuple[str, ...]] = {
    "train": _list("""dog, cat, bird, goose, cow, fox, swan, bull, monkey, hawk, puppy, horse, crow, goat, eagle, rat, lion, bear, donkey, hen, rooster, seagull, bee, owl, kitten, pony, hound, wild boar, pig, rabbit,
squirrel, parrot, turkey, snake"""),
    "test": heldout.ANIMALS,
}

MOVERS: dict[Split, tuple[str, ...]] = {
    "train": _list("""robot, ball, car, bike, drone, truck, kite, rolling cart, frisbee, scooter, forklift, segway, model plane, bus, train, motorbike, skateboard, wheel, shopping cart, rocket, plane, helicopter, tennis
ball, football, toy car, go-kart, vehicle, lorry, cleaning robot, sled, swing, branch, stone, crane"""),
    "test": heldout.MOVERS,
}


GROUPS: dict[str, dict[Split, tuple[str, ...]]] = {
    "fruit": {"train": _list("""apple, banana, pear, plum, cherry, lemon, strawberry, melon, peach, grapes, orange, mango, kiwi, pineapple, fig, blueberry, blackberry, grape, lime, pomegranate, coconut, date, red apple, green apple,
tangerine, melon slice, cherries, currant, gooseberry, mandarin, clementine, lychee, passion fruit, dragon fruit, cranberry, quince, plums, pears, watermelon, kumquat, guava, strawberries, avocado"""), "test": tuple(heldout.GROUPS["fruit"])},
    "vegetables": {"train": _list("""carrot, onion, potato, leek, pepper, tomato, cabbage, cucumber, garlic, corn, broccoli, spinach, lettuce, celery, green pepper, red onion, pumpkin, radish, turnip, beans, peas, zucchini, sweet potato,
red cabbage, kale, fennel, aubergine, green beans, chilli, spring onion, mushroom, courgette, brussels sprout, squash, swede, chard, rocket, potatoes, tomatoes, carrots, onions"""), "test": tuple(heldout.GROUPS["vegetables"])},
    "rubbish": {"train": _list("""paper, can, tissue, wrapper, crumpled paper, empty bag, used napkin, broken cup, peel, old newspaper, used tissue, empty can, candy wrapper, bottle, banana peel, apple core, old paper, empty bottle,
torn paper, plastic wrapper, cigarette end, dead battery, paper scrap, broken glass, orange peel, eggshell, empty box, used teabag, dirty napkin, crisp packet, old receipt, crushed can, chewing gum,
broken pencil, dust ball, empty cup, old envelope"""), "test": tuple(heldout.GROUPS["rubbish"])},
    "pens": {"train": _list("""pen, red pen, blue pen, pencil, marker, crayon, green pen, black pen, highlighter, felt pen, yellow pen, orange pen, white pen, pink pen, ballpoint, biro, felt-tip, eraser, chalk, blue marker, red
marker, ink pen, blue pencil, colour pencil, text marker, stylus"""), "test": tuple(heldout.GROUPS["pens"])},
    "toys": {"train": _list("""toy car, doll, teddy bear, ball, toy train, puzzle, toy boat, toy plane, rubber duck, toy bus, toy dog, toy ship, toy horse, toy house, plush rabbit, lego brick, action figure, building block, rattle,
kite, marble, toy tractor, teddy, doll house, puppet, frisbee, toy duck, toy soldier, slinky, jigsaw, toy drum, dinosaur, rag doll"""), "test": tuple(heldout.GROUPS["toys"])},
    "tools": {"train": _list("""hammer, wrench, screwdriver, pliers, drill, saw, spanner, chisel, tape measure, mallet, axe, file, spirit level, crowbar, hand drill, plane, level, soldering iron, hex key, ratchet, box cutter, tin
snips, sander, pipe wrench, bolt cutter, electric drill, trowel, spatula knife, scraper, small hammer, big hammer, awl"""), "test": tuple(heldout.GROUPS["tools"])},
    "dishes": {"train": _list("""plate, mug, bowl, glass, cup, saucer, dinner plate, teacup, soup bowl, tea cup, small plate, big plate, wine glass, teapot, water glass, coffee cup, jug, egg cup, dessert plate, sauce boat, cereal
bowl, tumbler, beer mug, deep plate, white plate, serving dish, bowl of glass"""), "test": tuple(heldout.GROUPS["dishes"])},
    "clothes": {"train": _list("""shirt, sock, hat, glove, scarf, belt, jumper, trousers, skirt, coat, cap, t-shirt, dress, jacket, tie, sweater, jeans, shorts, stocking, blouse, pyjamas, mitten"""), "test": ()},
    "cutlery": {"train": _list("""fork, spoon, knife, teaspoon, soup spoon, butter knife, ladle, dessert fork, chopsticks, steak knife, cake fork, tablespoon, steel bread knife"""), "test": ()},
    "electronics": {"train": _list("""phone, charger, usb stick, cable, mouse, headphones, camera, laptop, tablet, remote, keyboard, radio, earphones, adapter, hard disk, microphone, game controller, smart watch"""), "test": ()},
    "drinks": {"train": _list("""juice, water bottle, milk, cola, lemonade, tea, coffee, beer can, apple juice, smoothie, iced tea, soda, wine bottle, mineral water"""), "test": ()},
    "sweets": {"train": _list("""candy, chocolate bar, lollipop, gummy bear, caramel, toffee, liquorice, marshmallow, praline, jelly bean, fudge, bonbon, chocolate egg"""), "test": ()},
    "books": {"train": _list("""novel, atlas, dictionary, cookbook, comic, notebook, textbook, diary, photo album, bible, travel guide, picture story, paperback"""), "test": ()},
    "jewellery": {"train": _list("""ring, necklace, earring, bracelet, brooch, pearl chain, gold chain, pendant, watch, cufflinks of gold, silver ring, diamond ring"""), "test": ()},
    "instruments": {"train": _list("""flute, violin, drum, trumpet, harmonica, guitar, tambourine, recorder, triangle, ukulele, xylophone, clarinet, maracas"""), "test": ()},
    "bakery": {"train": _list("""bread, bun, croissant roll, bagel, muffin, cake, baguette, pretzel, roll, doughnut, pie, toast, brioche, scone"""), "test": ()},
    "dairy": {"train": _list("""cheese, butter, yoghurt, cream, milk carton, cottage cheese, quark, buttermilk, mozzarella, camembert"""), "test": ()},
    "animals": {"train": _list("""toy lion, toy elephant, toy cow, toy horse figure, toy pig, toy zebra, toy tiger, toy monkey, toy bear, toy giraffe, toy sheep, toy fox"""), "test": ()},
    "coins": {"train": _list("""penny, dime, nickel, quarter, euro, cent, gold coin, silver coin, small coin, ten cent piece"""), "test": ()},
    "screws and nails": {"train": _list("""screw, nail, bolt, nut, long screw, wood screw, small nail, washer, hook, steel nail"""), "test": ()},
    "stationery": {"train": _list("""ruler, stapler, paper clip, glue stick, eraser, scissors, notepad, sticky notes, envelope, tape, hole punch, folder, compass, sharpener, rubber band"""), "test": ()},
    "medicine": {"train": _list("""pill box, cough syrup, bandage, ointment, aspirin, plaster, eye drops, thermometer, vitamin pills, nose spray"""), "test": ()},
    "cleaning things": {"train": _list("""sponge, brush, duster, soap, cloth, detergent, mop head, scrubber, broom, washing powder, dustpan"""), "test": ()},
}  # fmt: skip
"""Kinds, each with things of the kind."""

ARM_OBJECTS: dict[Split, tuple[str, ...]] = {
    "train": _list("""red box, blue box, red cube, blue cube, green cube, bottle, cup, phone, book, eraser, ruler, block, stapler, key, coin, spoon, fork, mug, jar, can, sponge, egg, battery, tape, brush, card, dice,
candle, apple, banana, pencil, pen, yellow block, white ball, small box, big box, screw, cap, lid, bread, cheese, tea bag, letter, remote, glue stick, usb stick, white cube, black box, wooden block,
orange box, purple box, orange cube, pink block, silver coin, scissors, teaspoon, yogurt, toothpaste, marble, calculator, notepad, cookie, charger, domino, grey box, yellow cube, lighter, matchbox,
whisk, corkscrew top, paperclip, rubber, needle case, thread spool, playing card, chess king, chess queen, domino tile, memory card, sim card, hard drive, light bulb, fuse, switch, plug, spring,
washer, bolt, nut, nail, gear, bearing, pipe, hose clip, bottle cap, wine cork, tea light, pepper mill, salt shaker, egg cup, jam jar, honey jar, soup can, tuna can, cereal bar, candy bar, lollipop,
chocolate bar, cake slice, bread roll, sausage, pickle jar, ketchup bottle, mustard tube, toothbrush, comb, hair clip, nail file, cotton ball, soap bar, shampoo bottle, perfume, lotion tube, pill
bottle, bandage roll, thermometer, test tube, petri dish, pipette, vial, flask, beaker, red ball, blue ball, green ball, yellow ball, red block, blue block, green block, red brick, blue brick, white
box, yellow box, black cube, metal rod, plastic lid, rubber ring, wooden peg, toy car, toy block, paper cup, paper clip, post card, business card, ticket, stamp, envelope, folder, binder clip top,
stamp pad, ink pad, magnet, compass, magnifier, dice box, cable tie, screw box"""),
    "test": _named(heldout.ARM_OBJECTS),
}

ARM_PLACES: dict[Split, tuple[str, ...]] = {
    "train": _list("""tray, basket, plate, box, bin, bowl, shelf, drawer, mat, left tray, blue bin, rack, crate, red basket, saucer, right tray, cardboard box, case, tub, bag, pot, carton, left bin, right bin, red bin,
green bin, left basket, right basket, red box, white box, wooden box, metal box, plastic box, sink, pan, bucket, jar, cabinet, locker, cart, table, desk, upper shelf, lower shelf, blue tray, red tray,
white plate, cutting board, left shelf, right shelf, left-hand box, corner, middle, scale, conveyor, pallet, toolbox, suitcase, fridge, top shelf, drawer unit, second drawer, lunch box"""),
    "test": heldout.ARM_PLACES,
}

SORT_PLACES: dict[Split, tuple[str, ...]] = {
    "train": _list("""bin, box, tray, basket, bowl, drawer, left basket, right basket, left box, right box, bag, crate, bucket, green bin, left tray, right tray, cupboard, red box, blue box, white box, red basket, blue
basket, left bin, right bin, big box, small box, wooden box, tub, carton, case, plate, shelf, red bin, blue bin, first box, second box, upper drawer, lower drawer, left drawer, right drawer, jar,
suitcase, left bowl, right bowl, red tray, blue bowl"""),
    "test": heldout.SORT_PLACES,
}

COLOURS: dict[Split, tuple[str, ...]] = {
    "train": ("red", "blue", "green", "yellow", "white", "black", "orange", "purple", "pink", "grey"),
    "test": heldout.COLOURS,
}
SHAPES: dict[Split, tuple[str, ...]] = {
    "train": ("box", "cube", "block", "brick", "crate", "tile", "cup", "plate", "ball", "ring", "tin"),
    "test": heldout.SHAPES,
}
LOOKED_AT: dict[Split, tuple[str, ...]] = {
    "train": (
        "table",
        "desk",
        "tray",
        "shelf",
        "plate",
        "workbench",
        "floor",
        "rack",
        "box lid",
        "left side",
    ),
    "test": heldout.LOOKED_AT,
}


def coinable(vocabulary: Iterable[str]) -> tuple[str, ...]:
    """Words of a tokenizer's vocabulary that may stand for names: none that wordings use, none that is held out.

    A model reads a common word as one token, and writes it after a quotation mark as others; it learns that word by
    word, so training shows it as many as it can.
    """
    taken = {
        word for patterns in PHRASES["train"].values() for text in patterns for word in _WORD.findall(text)
    }
    held_texts = [text for texts in PHRASES["test"].values() for text in texts]
    for table in (
        DRONE_OBJECTS,
        NOUNS,
        ARM_OBJECTS,
        ADJECTIVES,
        SURFACES,
        UNDERS,
        ARM_PLACES,
        SORT_PLACES,
        MESSAGES,
    ):
        held_texts += table["test"]
    for table in (PEOPLE, ANIMALS, MOVERS, COLOURS, SHAPES, LOOKED_AT, *GROUPS.values()):
        held_texts += table["test"]
    held_texts += [f"{purpose} {name}" for purpose, name in NEEDS["test"]]
    held_texts += [f"{question} {answer}" for question, answer in QUESTIONS["test"]]
    taken |= {word for text in held_texts for word in _WORD.findall(text.lower())}
    marked = (word[1:] for word in vocabulary if word.startswith("\u0120"))  # how these files write a space
    return tuple(sorted(word for word in marked if re.fullmatch("[a-z]{4,11}", word) and word not in taken))
